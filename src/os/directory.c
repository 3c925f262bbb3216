/* SPDX-License-Identifier: MIT */
/* See directory.h. A path that is too long for the kernel is not tried. */
#include "os/directory.h"

#include <string.h>
#include <sys/stat.h>

#define PATH_BYTES 4096

void mz_directory_make(const char *directory)
{
    char path[PATH_BYTES];
    size_t length = strlen(directory);
    if (length == 0 || length >= sizeof path) {
        return;
    }
    memcpy(path, directory, length + 1);
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    (void)mkdir(path, 0700);
}
