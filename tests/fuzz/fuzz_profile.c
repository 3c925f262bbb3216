/* SPDX-License-Identifier: MIT */
/*
 * Goal: whatever a profile file holds, loading it gives a record within its bounds or one of the
 * documented errors, and what is derived from a record that was accepted is finite and not below 0.
 */
#include "fuzz.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "profile/record.h"

static char path[64];
static int file = -1;

static void make_file(void)
{
    file = memfd_create("profile", 0);
    MZ_FUZZ_CHECK(file >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
}

static mz_profile_record make_record(size_t index)
{
    mz_profile_record record;
    memset(&record, 0, sizeof record);
    snprintf(record.cpu, sizeof record.cpu, "Processor %zu", index);
    record.cores = 4;
    record.direct = index % 2 == 0;
    record.quick = index % 2 == 1;
    record.measured_s = 1700000000;
    record.read_count = 3;
    record.reads[0] = (mz_profile_read){262144, 1, 1e9};
    record.reads[1] = (mz_profile_read){1048576, 4, 2e9};
    record.reads[2] = (mz_profile_read){4194304, 8, 2.1e9};
    for (size_t i = 0; mz_codec_at(i) != NULL && i < MZ_PROFILE_CODECS; i++) {
        mz_profile_codec *c = &record.codecs[record.codec_count++];
        *c = (mz_profile_codec){.threads = 1, .encode_bytes_per_s = 5e9, .decode_bytes_per_s = 6e9};
        snprintf(c->codec, sizeof c->codec, "%s", mz_codec_at(i)->name);
        snprintf(c->variant, sizeof c->variant, "generic");
    }
    record.pages = (mz_profile_pages){1e9, 8e9, 1e9, 9e9};
    record.write_bytes_per_s = 1e9;
    record.memcpy_bytes_per_s = 1e10;
    mz_profile_find_knee(&record);
    return record;
}

static size_t seed(size_t index, uint8_t *data)
{
    mz_error error = MZ_ERROR_INIT;
    char saved[64];
    snprintf(saved, sizeof saved, "/tmp/mz-fuzz-profile.%ld", (long)getpid());
    if (index >= 2) {
        return 0;
    }
    mz_profile_record record = make_record(index);
    MZ_FUZZ_CHECK(mz_profile_save(&record, saved, &error) == MZ_OK);
    FILE *stream = fopen(saved, "rb");
    MZ_FUZZ_CHECK(stream != NULL);
    size_t bytes = fread(data, 1, MZ_FUZZ_MOST, stream);
    fclose(stream);
    MZ_FUZZ_CHECK(unlink(saved) == 0 && bytes > 100 && bytes < MZ_FUZZ_MOST);
    return bytes;
}

static void check_record(const mz_profile_record *record)
{
    MZ_FUZZ_CHECK(memchr(record->cpu, 0, sizeof record->cpu) != NULL);
    MZ_FUZZ_CHECK(record->read_count <= MZ_PROFILE_READS);
    MZ_FUZZ_CHECK(record->codec_count <= MZ_PROFILE_CODECS);
    for (uint32_t i = 0; i < record->codec_count; i++) {
        const mz_profile_codec *c = &record->codecs[i];
        MZ_FUZZ_CHECK(memchr(c->codec, 0, sizeof c->codec) != NULL);
        MZ_FUZZ_CHECK(memchr(c->variant, 0, sizeof c->variant) != NULL);
    }
    mz_profile_record copy = *record;
    mz_profile_find_knee(&copy);
    mz_profile rates = mz_profile_rates(record, "q8");
    MZ_FUZZ_CHECK(isfinite(rates.decode_bytes_per_s) && rates.decode_bytes_per_s > 0);
    MZ_FUZZ_CHECK(isfinite(rates.read_bytes_per_s) && rates.read_bytes_per_s >= 0);
}

static void run(const uint8_t *data, size_t bytes, mz_fuzz_kind kind)
{
    mz_error error = MZ_ERROR_INIT;
    mz_profile_record record;
    if (file < 0) {
        make_file();
    }
    MZ_FUZZ_CHECK(ftruncate(file, 0) == 0);
    MZ_FUZZ_CHECK(pwrite(file, data, bytes, 0) == (ssize_t)bytes);
    mz_status status = mz_profile_load(path, NULL, &record, &error);
    MZ_FUZZ_CHECK(status == MZ_OK || status == MZ_E_CORRUPT || status == MZ_E_CHANGED);
    MZ_FUZZ_CHECK(kind != MZ_FUZZ_SEED || status == MZ_OK);
    MZ_FUZZ_CHECK(status == MZ_OK || error.text[0] != '\0');
    if (status == MZ_OK) {
        check_record(&record);
    }
}

const mz_fuzz_target mz_fuzz = {"profile", seed, NULL, run};
