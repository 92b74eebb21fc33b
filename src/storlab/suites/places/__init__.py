"""Where the scripts of a suite are run: guests, or this machine; what is prepared, watched and removed there."""
