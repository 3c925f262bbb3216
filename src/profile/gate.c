/* SPDX-License-Identifier: MIT */
/*
 * Gate records as JSON (jansson); see gate.h. A record that can't be read, or is of another codec
 * format, counts as none: the codec is then not used, which is the safe side.
 */
#include "profile/gate.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/cache_directory.h"
#include "os/directory.h"
#include "os/direct_io.h"

/* Evenly spread from the first page to the last: header, vocabulary and weights of every layer. */
#define SAMPLE_PAGES 256u

static mz_status hash_samples(mz_file *file, uint64_t *identity, mz_error *error)
{
    XXH3_state_t *hash = XXH3_createState();
    if (hash == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory for a hash");
    }
    XXH3_64bits_reset(hash);
    XXH3_64bits_update(hash, &file->bytes, sizeof file->bytes);
    uint8_t page[MZ_PAGE_BYTES];
    uint64_t last = (file->bytes - 1) / sizeof page;
    uint64_t samples = last + 1 < SAMPLE_PAGES ? last + 1 : SAMPLE_PAGES;
    mz_status status = MZ_OK;
    for (uint64_t i = 0; i < samples && status == MZ_OK; i++) {
        uint64_t offset = samples > 1 ? i * last / (samples - 1) * sizeof page : 0;
        uint64_t left = file->bytes - offset;
        uint64_t take = left < sizeof page ? left : sizeof page;
        status = mz_file_read_buffered(file, page, take, offset, error);
        if (status == MZ_OK) {
            XXH3_64bits_update(hash, page, take);
        }
    }
    *identity = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    return status;
}

static mz_status find_identity(const char *path, uint64_t *identity, mz_error *error)
{
    mz_file file;
    mz_status status = mz_file_open(&file, mz_os_linux(), path, error);
    if (status != MZ_OK) {
        return status;
    }
    status = file.bytes > 0 ? hash_samples(&file, identity, error)
                            : mz_error_set(error, MZ_E_CORRUPT, 0, "%s is empty", path);
    mz_file_close(&file);
    return status;
}

/* Path of the record, and of the directory that it lies in, each of `capacity` bytes. */
static mz_status record_path(const char *model, const mz_codec *codec, char *directory, char *path,
                             size_t capacity, mz_error *error)
{
    uint64_t identity = 0;
    mz_status status = find_identity(model, &identity, error);
    if (status == MZ_OK) {
        status = mz_cache_directory(directory, capacity, error);
    }
    if (status != MZ_OK) {
        return status;
    }
    int used = snprintf(path, capacity, "%s/gate-%s-%016llx.json", directory, codec->name,
                        (unsigned long long)identity);
    if (used < 0 || (size_t)used >= capacity) {
        return mz_error_set(error, MZ_E_INVALID, 0, "the name of the cache directory is too long");
    }
    return MZ_OK;
}

mz_status mz_gate_save(const char *path, const mz_codec *codec, const mz_gate_record *record,
                       mz_error *error)
{
    char directory[4096], wanted[4096], fresh[4128];
    mz_status status = record_path(path, codec, directory, wanted, sizeof wanted, error);
    if (status != MZ_OK) {
        return status;
    }
    mz_directory_make(directory);
    snprintf(fresh, sizeof fresh, "%s.%ld", wanted, (long)getpid());
    json_t *root = json_pack("{s:s, s:s, s:i, s:f, s:I, s:I}", "model", path, "codec", codec->name,
                             "codec_id", (int)codec->id, "mean_kl", record->mean_kl,
                             "context_tokens", (json_int_t)record->context_tokens, "scored_tokens",
                             (json_int_t)record->scored_tokens);
    bool written = root != NULL && json_dump_file(root, fresh, JSON_INDENT(2)) == 0;
    json_decref(root);
    if (!written || rename(fresh, wanted) != 0) {
        (void)unlink(fresh);
        return mz_error_set(error, MZ_E_IO, 0, "cannot write %s; make room or set XDG_CACHE_HOME",
                            wanted);
    }
    return MZ_OK;
}

mz_status mz_gate_passed(const char *path, const mz_codec *codec, bool *passed,
                         mz_gate_record *record, mz_error *error)
{
    char directory[4096], wanted[4096];
    mz_status status = record_path(path, codec, directory, wanted, sizeof wanted, error);
    if (status != MZ_OK) {
        return status;
    }
    *passed = false;
    json_t *root = json_load_file(wanted, 0, NULL);
    int id = -1;
    double mean_kl = 0;
    json_int_t context = 0, scored = 0;
    bool good = root != NULL &&
                json_unpack(root, "{s:i, s:F, s:I, s:I}", "codec_id", &id, "mean_kl", &mean_kl,
                            "context_tokens", &context, "scored_tokens", &scored) == 0 &&
                id == codec->id && isfinite(mean_kl) && scored > 0;
    json_decref(root);
    if (good) {
        *passed = mean_kl <= MZ_GATE_KL;
        if (record != NULL) {
            *record = (mz_gate_record){mean_kl, (long)context, (long)scored};
        }
    }
    return MZ_OK;
}
