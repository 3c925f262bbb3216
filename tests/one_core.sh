#!/bin/sh
# SPDX-License-Identifier: MIT
# Run a command on one core only: the first of those that we may use.
core=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
exec taskset -c "$core" "$@"
