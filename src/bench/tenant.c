/* SPDX-License-Identifier: MIT */
/* A process that answers each number of bytes it is sent with one byte, once it holds them. */
#include "bench/tenant.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/memory.h"

static bool take(void **held, uint64_t bytes)
{
    mz_error error = MZ_ERROR_INIT;
    if (mz_memory_reserve(mz_os_linux(), bytes, MZ_HUGE_BYTES, held, &error) != MZ_OK) {
        *held = NULL;
        return false;
    }
    mz_memory_want_huge(mz_os_linux(), *held, bytes);
    return mz_memory_populate(mz_os_linux(), *held, bytes, &error) == MZ_OK;
}

static void serve(int channel)
{
    uint64_t wanted = 0, held_bytes = 0;
    void *held = NULL;
    while (read(channel, &wanted, sizeof wanted) == (ssize_t)sizeof wanted) {
        if (held != NULL) {
            mz_memory_release(mz_os_linux(), held, held_bytes);
            held = NULL;
        }
        held_bytes = mz_page_ceil(wanted);
        char answer = held_bytes == 0 || take(&held, held_bytes) ? 1 : 0;
        if (write(channel, &answer, 1) != 1) {
            break;
        }
    }
    _exit(0);
}

bool mz_tenant_start(mz_tenant *tenant)
{
    int ends[2];
    *tenant = (mz_tenant){-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        return false;
    }
    tenant->process = fork();
    if (tenant->process == 0) {
        close(ends[0]);
        serve(ends[1]);
    }
    close(ends[1]);
    tenant->channel = ends[0];
    if (tenant->process < 0) {
        mz_tenant_stop(tenant);
        return false;
    }
    return true;
}

bool mz_tenant_hold(mz_tenant *tenant, uint64_t bytes)
{
    char answer = 0;
    return write(tenant->channel, &bytes, sizeof bytes) == (ssize_t)sizeof bytes &&
           read(tenant->channel, &answer, 1) == 1 && answer == 1;
}

void mz_tenant_stop(mz_tenant *tenant)
{
    if (tenant->channel >= 0) {
        close(tenant->channel); /* it ends when it reads that */
    }
    if (tenant->process > 0) {
        waitpid(tenant->process, NULL, 0);
    }
    *tenant = (mz_tenant){-1, -1};
}
