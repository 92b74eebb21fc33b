#!/bin/ksh
# sum_of calls xsum, but this comment calls nothing: xsum
function sum_of
{
	find "$1" -exec xsum {} +
}

same_content () {
	[ "$(sum_of "$1")" = "$(sum_of "$2")" ]
}

function copy # and compare
{
	cp "$1" "$2"; same_content "$1" "$2" || jq . < "$1"
	# xsum
}

function unrelated
{
	echo "the xsum of nothing"
}
