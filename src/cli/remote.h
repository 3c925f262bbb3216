/* SPDX-License-Identifier: MIT */
/*
 * Commands that steer other processes through their control sockets.
 *
 *   mzcache status   [--pid N] [--json]
 *   mzcache evict    SIZE [--pid N] [--tags weights,kv_cache] [--json]
 *   mzcache prefetch [--pid N] [--wait] [--json]
 *
 * Each takes the arguments from its own name on (argv[0] is "status"), prints to stdout and stderr
 * and returns the exit code: 0 done, 1 failed (no such process, refused), 2 wrong usage, 3 partly
 * done. Without --pid: every process for status, the only one for the others. Not thread-safe
 * (getopt).
 */
#ifndef MZ_CLI_REMOTE_H
#define MZ_CLI_REMOTE_H

int mz_cli_status(int argc, char **argv);
int mz_cli_evict(int argc, char **argv);
int mz_cli_prefetch(int argc, char **argv);

#endif
