/* SPDX-License-Identifier: MIT */
/* The commands, and what they share: exit codes and how a wrong use is reported. */
#ifndef MZ_CLI_CLI_H
#define MZ_CLI_CLI_H

enum mz_cli_exit {
    MZ_CLI_OK = 0,
    MZ_CLI_FAILED = 1,
    MZ_CLI_USAGE = 2,
    MZ_CLI_PARTIAL = 3,  /* less was freed than asked for */
    MZ_CLI_NO_HOST = 127 /* exec: no such program */
};

/* Each takes argv with its own name first and returns an exit code; --help prints its page. */
int mz_cli_run(int argc, char **argv);
int mz_cli_bench(int argc, char **argv);
int mz_cli_chat(int argc, char **argv);
int mz_cli_demo(int argc, char **argv);
int mz_cli_doctor(int argc, char **argv);
int mz_cli_eval(int argc, char **argv);
int mz_cli_exec(int argc, char **argv);
int mz_cli_plan(int argc, char **argv);
int mz_cli_plot(int argc, char **argv);
int mz_cli_profile(int argc, char **argv);

#endif
