/* SPDX-License-Identifier: MIT */
/* mincore in pieces of the stack's size; see residency.h. */
#include "os/residency.h"

#include <sys/mman.h>

#include "os/os.h"

#define PIECE_PAGES 1024u

uint64_t mz_memory_resident(void *address, uint64_t bytes)
{
    unsigned char present[PIECE_PAGES];
    uint64_t resident = 0;
    for (uint64_t done = 0; done < bytes; done += PIECE_PAGES * (uint64_t)MZ_PAGE_BYTES) {
        uint64_t piece = bytes - done;
        if (piece > PIECE_PAGES * (uint64_t)MZ_PAGE_BYTES) {
            piece = PIECE_PAGES * (uint64_t)MZ_PAGE_BYTES;
        }
        if (mincore((uint8_t *)address + done, piece, present) != 0) {
            return 0;
        }
        for (uint64_t page = 0; page * MZ_PAGE_BYTES < piece; page++) {
            resident += (present[page] & 1) != 0 ? MZ_PAGE_BYTES : 0;
        }
    }
    return resident;
}
