/* SPDX-License-Identifier: MIT */
/*
 * Feeds a fuzz target: first its seeds as they are, then changed ones. Usage: PROGRAM ITERATIONS
 * [FIRST]; the same numbers give the same inputs, so a failure is repeated by `PROGRAM 1 FIRST` with
 * the number that was printed.
 *
 * Changes are those that find errors in decoders: bits, bytes at the edges of their range, 32-bit
 * numbers near limits, pieces cut off, doubled or taken from another seed. Half of the inputs get
 * their checksums put right, or nothing would ever pass them. The number of iterations is fixed and
 * no time is measured.
 */
#include "fuzz.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096u
#define SEEDS_MOST 512u

typedef struct seed {
    uint8_t *data;
    size_t bytes;
} seed;

static volatile sig_atomic_t has_input;
static unsigned long long input_number;

uint8_t *mz_fuzz_guarded(size_t bytes)
{
    size_t usable = (bytes + PAGE - 1) / PAGE * PAGE;
    uint8_t *pages =
        mmap(NULL, usable + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MZ_FUZZ_CHECK(pages != MAP_FAILED);
    MZ_FUZZ_CHECK(mprotect(pages + usable, PAGE, PROT_NONE) == 0);
    return pages + usable - bytes;
}

#ifdef MZ_FUZZ_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static uint8_t *room;
    if (room == NULL) {
        room = mz_fuzz_guarded(MZ_FUZZ_MOST);
    }
    if (bytes <= MZ_FUZZ_MOST) {
        uint8_t *input = room + MZ_FUZZ_MOST - bytes;
        memcpy(input, data, bytes);
        if (mz_fuzz.seal != NULL) {
            mz_fuzz.seal(input, bytes);
        }
        mz_fuzz.run(input, bytes, mz_fuzz.seal != NULL ? MZ_FUZZ_SEALED : MZ_FUZZ_CHANGED);
    }
    return 0;
}

#else

static uint64_t next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dull;
}

static size_t below(uint64_t *state, size_t limit)
{
    return limit > 0 ? (size_t)((next(state) >> 16) % limit) : 0;
}

/* Where to change something: as often in the first 64 bytes, where headers are, as anywhere. */
static size_t place(uint64_t *state, size_t bytes)
{
    size_t near = bytes < 64 ? bytes : 64;
    return below(state, next(state) >> 63 != 0 ? near : bytes);
}

static void set_number(uint8_t *data, size_t bytes, uint64_t *state)
{
    static const uint32_t numbers[] = {0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff,
                                       0x7fffffff, 0x80000000u, 0xfffffffeu, 0xffffffffu};
    uint32_t number = numbers[below(state, sizeof numbers / sizeof numbers[0])];
    size_t width = (size_t)1 << below(state, 3); /* 1, 2 or 4 */
    if (bytes >= width) {
        memcpy(data + place(state, bytes - width + 1), &number, width);
    }
}

/* A piece of one seed over, or in between, what is there. */
static size_t splice(uint8_t *data, size_t bytes, const seed *from, uint64_t *state)
{
    size_t count = below(state, from->bytes < 300 ? from->bytes : 300) + 1;
    if (count > from->bytes || bytes + count > MZ_FUZZ_MOST) {
        return bytes;
    }
    const uint8_t *piece = from->data + below(state, from->bytes - count + 1);
    size_t at = below(state, bytes + 1);
    if (next(state) >> 63 != 0) {
        memmove(data + at + count, data + at, bytes - at);
        memcpy(data + at, piece, count);
        return bytes + count;
    }
    memcpy(data + at, piece, count);
    return at + count > bytes ? at + count : bytes;
}

static size_t cut(uint8_t *data, size_t bytes, uint64_t *state)
{
    size_t count = below(state, bytes / 4 + 2);
    if (count >= bytes || next(state) % 4 == 0) {
        return below(state, bytes + 1);
    }
    size_t at = below(state, bytes - count + 1);
    memmove(data + at, data + at + count, bytes - at - count);
    return bytes - count;
}

static size_t mutate(uint8_t *data, size_t bytes, const seed *seeds, size_t count, uint64_t *state)
{
    for (size_t steps = 1 + below(state, 4); steps > 0; steps--) {
        switch (bytes == 0 ? 5 : below(state, 7)) {
        case 0:
        case 1: {
            size_t at = place(state, bytes);
            data[at] = (uint8_t)(data[at] ^ 1u << below(state, 8));
            break;
        }
        case 2:
            data[place(state, bytes)] = (uint8_t)next(state);
            break;
        case 3:
            set_number(data, bytes, state);
            break;
        case 4:
            bytes = cut(data, bytes, state);
            break;
        case 5:
            bytes = splice(data, bytes, &seeds[below(state, count)], state);
            break;
        default: {
            size_t at = place(state, bytes);
            memset(data + at, (int)(next(state) & 255), below(state, bytes - at < 40 ? bytes - at : 40));
            break;
        }
        }
    }
    return bytes;
}

static size_t load_seeds(seed *seeds)
{
    static uint8_t data[MZ_FUZZ_MOST];
    size_t count = 0, bytes;
    for (; count < SEEDS_MOST && (bytes = mz_fuzz.seed(count, data)) > 0; count++) {
        MZ_FUZZ_CHECK(bytes <= MZ_FUZZ_MOST);
        seeds[count].data = malloc(bytes);
        MZ_FUZZ_CHECK(seeds[count].data != NULL);
        memcpy(seeds[count].data, data, bytes);
        seeds[count].bytes = bytes;
    }
    MZ_FUZZ_CHECK(count > 0 && count < SEEDS_MOST);
    return count;
}

/* Say which input it was; only what a signal handler may call. */
static void say_input(int signal_number)
{
    char text[64];
    int used = has_input ? snprintf(text, sizeof text, "input %llu\n", input_number) : 0;
    if (used > 0 && write(STDERR_FILENO, text, (size_t)used) < 0) {
        /* nothing else to say it by */
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void run_at_guard(uint8_t *room, const uint8_t *data, size_t bytes, mz_fuzz_kind kind)
{
    uint8_t *input = room + MZ_FUZZ_MOST - bytes;
    memcpy(input, data, bytes);
    mz_fuzz.run(input, bytes, kind);
}

int main(int argc, char **argv)
{
    static seed seeds[SEEDS_MOST];
    static uint8_t data[2 * MZ_FUZZ_MOST];
    unsigned long long count = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000;
    unsigned long long first = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    uint8_t *room = mz_fuzz_guarded(MZ_FUZZ_MOST);
    size_t seed_count = load_seeds(seeds);
    signal(SIGABRT, say_input);
    signal(SIGSEGV, say_input);
    signal(SIGBUS, say_input);
    for (size_t i = 0; i < seed_count; i++) {
        run_at_guard(room, seeds[i].data, seeds[i].bytes, MZ_FUZZ_SEED);
    }
    has_input = 1;
    for (input_number = first; input_number < first + count; input_number++) {
        uint64_t state = input_number * 0x9e3779b97f4a7c15ull + 1;
        const seed *from = &seeds[below(&state, seed_count)];
        memcpy(data, from->data, from->bytes);
        size_t bytes = mutate(data, from->bytes, seeds, seed_count, &state);
        mz_fuzz_kind kind = MZ_FUZZ_CHANGED;
        if (mz_fuzz.seal != NULL && next(&state) >> 63 != 0) {
            mz_fuzz.seal(data, bytes);
            kind = MZ_FUZZ_SEALED;
        }
        run_at_guard(room, data, bytes, kind);
    }
    printf("%s: %zu seeds, %llu changed inputs\n", mz_fuzz.name, seed_count, count);
    for (size_t i = 0; i < seed_count; i++) {
        free(seeds[i].data);
    }
    return 0;
}

#endif
