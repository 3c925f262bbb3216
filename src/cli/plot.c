/* SPDX-License-Identifier: MIT */
/* Starting gnuplot; see plot.h. */
#include "cli/plot.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

bool mz_plot_begin(mz_plot *plot)
{
    *plot = (mz_plot){NULL, NULL, 0};
    plot->script = open_memstream(&plot->text, &plot->bytes);
    if (plot->script == NULL) {
        fprintf(stderr, "mzcache plot: no memory for a figure\n");
    }
    return plot->script != NULL;
}

void mz_plot_text(const mz_plot *plot, const char *text)
{
    for (; *text != '\0'; text++) {
        bool is_plain = (unsigned char)*text >= ' ' && *text != '"' && *text != '\\' && *text != '`';
        fputc(is_plain ? *text : ' ', plot->script);
    }
}

/* Write all of it; false if the reader is gone. */
static bool feed(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t written = write(fd, text, bytes);
        if (written < 0 && errno != EINTR) {
            return false;
        }
        text += written > 0 ? written : 0;
        bytes -= written > 0 ? (size_t)written : 0;
    }
    return true;
}

/* gnuplot, in `directory`, with a pipe as its standard input; its process, -1 having said why. */
static pid_t start(const char *directory, int *input)
{
    int ends[2];
    if (pipe(ends) != 0) {
        fprintf(stderr, "mzcache plot: no pipe: %s\n", strerror(errno));
        return -1;
    }
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        if (dup2(ends[0], STDIN_FILENO) < 0 || chdir(directory) != 0) {
            fprintf(stderr, "mzcache plot: %s: %s\n", directory, strerror(errno));
            _exit(1);
        }
        close(ends[0]);
        execlp("gnuplot", "gnuplot", "-d", (char *)NULL);
        fprintf(stderr, "mzcache plot: can't start gnuplot: %s\n", strerror(errno));
        _exit(1);
    }
    close(ends[0]);
    if (child < 0) {
        fprintf(stderr, "mzcache plot: can't start a process: %s\n", strerror(errno));
        close(ends[1]);
        return -1;
    }
    *input = ends[1];
    return child;
}

static bool run(const char *directory, const char *head, const mz_plot *plot)
{
    int input = -1, status = -1;
    pid_t child = start(directory, &input);
    if (child < 0) {
        return false;
    }
    void (*handler)(int) = signal(SIGPIPE, SIG_IGN); /* gnuplot may end before it has read all */
    bool is_fed = feed(input, head, strlen(head)) && feed(input, plot->text, plot->bytes);
    close(input);
    signal(SIGPIPE, handler);
    return waitpid(child, &status, 0) == child && is_fed && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

bool mz_plot_end(mz_plot *plot, const char *directory, const char *name, int width, int height)
{
    static const char *const terminals[][2] = {{"svg", "svg enhanced background 'white'"},
                                               {"png", "pngcairo enhanced"}};
    bool is_done = fclose(plot->script) == 0;
    for (int i = 0; i < 2 && is_done; i++) {
        char head[256];
        snprintf(head, sizeof head, "set terminal %s size %d,%d font 'sans,11'\nset output '%s.%s'\n",
                 terminals[i][1], width, height, name, terminals[i][0]);
        is_done = run(directory, head, plot);
        if (!is_done) {
            fprintf(stderr, "mzcache plot: %s.%s was not drawn\n", name, terminals[i][0]);
        }
    }
    free(plot->text);
    *plot = (mz_plot){NULL, NULL, 0};
    return is_done;
}
