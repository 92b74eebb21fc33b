#!/bin/bash
zpool destroy -f tank
