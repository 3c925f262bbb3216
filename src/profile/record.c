/* SPDX-License-Identifier: MIT */
/* Profile records as JSON (jansson) and what is derived from them; see record.h. */
#include "profile/record.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/cache_directory.h"
#include "kernels/kernels.h"
#include "os/directory.h"
#include "os/process.h"

#define RECORD_VERSION 3 /* 2 read by threads */
#define KNEE_SHARE 0.95

const mz_codec_shape mz_profile_shape = {MZ_ELEM_F16, MZ_PROFILE_ROW_BYTES, MZ_PROFILE_ROWS};

bool mz_profile_wants(const mz_codec *codec)
{
    return codec->takes(&mz_profile_shape);
}

mz_status mz_profile_identify(const char *directory, mz_profile_record *record, mz_error *error)
{
    struct stat place;
    struct statfs system;
    if (stat(directory, &place) != 0 || statfs(directory, &system) != 0) {
        int sys_errno = errno;
        return mz_error_set(error, mz_status_from_errno(sys_errno), sys_errno,
                            "cannot look at the store directory %s; make it or name another",
                            directory);
    }
    mz_machine_cpu_name(record->cpu, sizeof record->cpu);
    record->cores = (uint32_t)mz_machine_cores();
    /* st_dev may be another after each boot (btrfs, device mapper); f_fsid comes from the UUID. */
    uint64_t id = 0;
    _Static_assert(sizeof system.f_fsid == sizeof id, "f_fsid has 64 bits");
    memcpy(&id, &system.f_fsid, sizeof id);
    record->device = id != 0 ? id : (uint64_t)place.st_dev;
    record->file_system = (uint64_t)system.f_type;
    return MZ_OK;
}

/* Path of the record that a machine and directory, identified in `who`, have. */
static mz_status path_of(const mz_profile_record *who, char *path, size_t capacity, mz_error *error)
{
    char identity[256];
    int length = snprintf(identity, sizeof identity, "%s|%u|%llu|%llu", who->cpu, who->cores,
                          (unsigned long long)who->device, (unsigned long long)who->file_system);
    unsigned long long key = XXH3_64bits(identity, (size_t)length);
    char cache[4096];
    mz_status status = mz_cache_directory(cache, sizeof cache, error);
    if (status != MZ_OK) {
        return status;
    }
    int used = snprintf(path, capacity, "%s/profile-%016llx.json", cache, key);
    if (used < 0 || (size_t)used >= capacity) {
        return mz_error_set(error, MZ_E_INVALID, 0, "the path of the profile is too long");
    }
    return MZ_OK;
}

mz_status mz_profile_path(const char *directory, char *path, size_t capacity, mz_error *error)
{
    mz_profile_record who;
    memset(&who, 0, sizeof who);
    mz_status status = mz_profile_identify(directory, &who, error);
    return status != MZ_OK ? status : path_of(&who, path, capacity, error);
}

mz_status mz_profile_find(const char *directory, mz_profile_record *record, mz_error *error)
{
    mz_profile_record who;
    char path[4200];
    memset(&who, 0, sizeof who);
    mz_status status = mz_profile_identify(directory, &who, error);
    if (status == MZ_OK) {
        status = path_of(&who, path, sizeof path, error);
    }
    return status != MZ_OK ? status : mz_profile_load(path, &who, record, error);
}

static json_t *record_to_json(const mz_profile_record *record)
{
    json_t *reads = json_array();
    for (uint32_t i = 0; i < record->read_count; i++) {
        const mz_profile_read *r = &record->reads[i];
        json_array_append_new(
            reads, json_pack("{s:I, s:I, s:f}", "request_bytes", (json_int_t)r->request_bytes,
                             "depth", (json_int_t)r->depth, "bytes_per_s", r->bytes_per_s));
    }
    json_t *codecs = json_array();
    for (uint32_t i = 0; i < record->codec_count; i++) {
        const mz_profile_codec *c = &record->codecs[i];
        json_array_append_new(
            codecs, json_pack("{s:s, s:s, s:I, s:f, s:f}", "codec", c->codec, "variant", c->variant,
                              "threads", (json_int_t)c->threads, "encode_bytes_per_s",
                              c->encode_bytes_per_s, "decode_bytes_per_s", c->decode_bytes_per_s));
    }
    const mz_profile_pages *p = &record->pages;
    json_t *pages =
        json_pack("{s:f, s:f, s:f, s:f}", "small_bytes_per_s", p->small_bytes_per_s,
                  "huge_bytes_per_s", p->huge_bytes_per_s, "small_all_bytes_per_s",
                  p->small_all_bytes_per_s, "huge_all_bytes_per_s", p->huge_all_bytes_per_s);
    return json_pack("{s:i, s:I, s:s, s:I, s:I, s:I, s:b, s:b, s:f, s:f, s:I, s:I, s:o, s:o, s:o}",
                     "version", RECORD_VERSION, "measured_s", (json_int_t)record->measured_s, "cpu",
                     record->cpu, "cores", (json_int_t)record->cores, "device",
                     (json_int_t)record->device, "file_system", (json_int_t)record->file_system,
                     "direct", record->direct, "quick", record->quick, "write_bytes_per_s",
                     record->write_bytes_per_s, "memcpy_bytes_per_s", record->memcpy_bytes_per_s,
                     "knee_request_bytes", (json_int_t)record->knee_request_bytes, "knee_depth",
                     (json_int_t)record->knee_depth, "reads", reads, "codecs", codecs, "pages",
                     pages);
}

mz_status mz_profile_save(const mz_profile_record *record, const char *path, mz_error *error)
{
    char scratch[4200];
    int used = snprintf(scratch, sizeof scratch, "%s.%ld.tmp", path, (long)getpid());
    if (used < 0 || (size_t)used >= sizeof scratch) {
        return mz_error_set(error, MZ_E_INVALID, 0, "the path of the profile is too long");
    }
    char *slash = strrchr(scratch, '/');
    if (slash != NULL) {
        *slash = '\0';
        mz_directory_make(scratch);
        *slash = '/';
    }
    json_t *root = record_to_json(record);
    if (root == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory for the profile");
    }
    int failed = json_dump_file(root, scratch, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    int sys_errno = errno;
    json_decref(root);
    if (failed == 0 && rename(scratch, path) != 0) {
        failed = 1;
        sys_errno = errno;
    }
    if (failed != 0) {
        (void)unlink(scratch);
        return mz_error_set(error, mz_status_from_errno(sys_errno), sys_errno,
                            "cannot write the profile %s", path);
    }
    return MZ_OK;
}

static bool read_reads(json_t *array, mz_profile_record *record)
{
    size_t count = json_array_size(array);
    if (!json_is_array(array) || count > MZ_PROFILE_READS) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        json_int_t request, depth;
        double rate;
        if (json_unpack(json_array_get(array, i), "{s:I, s:I, s:F}", "request_bytes", &request,
                        "depth", &depth, "bytes_per_s", &rate) != 0 ||
            request <= 0 || request > UINT32_MAX || depth <= 0 || depth > 4096 || !(rate > 0)) {
            return false;
        }
        record->reads[i] = (mz_profile_read){(uint32_t)request, (uint32_t)depth, rate};
    }
    record->read_count = (uint32_t)count;
    return true;
}

static bool read_codecs(json_t *array, mz_profile_record *record)
{
    size_t count = json_array_size(array);
    if (!json_is_array(array) || count > MZ_PROFILE_CODECS) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        mz_profile_codec *c = &record->codecs[i];
        const char *codec, *variant;
        json_int_t threads;
        if (json_unpack(json_array_get(array, i), "{s:s, s:s, s:I, s:F, s:F}", "codec", &codec,
                        "variant", &variant, "threads", &threads, "encode_bytes_per_s",
                        &c->encode_bytes_per_s, "decode_bytes_per_s",
                        &c->decode_bytes_per_s) != 0 ||
            strlen(codec) >= sizeof c->codec || strlen(variant) >= sizeof c->variant ||
            threads <= 0 || threads > 4096) {
            return false;
        }
        memcpy(c->codec, codec, strlen(codec) + 1);
        memcpy(c->variant, variant, strlen(variant) + 1);
        c->threads = (uint32_t)threads;
    }
    record->codec_count = (uint32_t)count;
    return true;
}

static bool record_from_json(json_t *root, mz_profile_record *record)
{
    int direct, quick;
    const char *cpu;
    json_int_t measured_s, cores, device, system, knee_request, knee_depth;
    json_t *reads, *codecs, *pages;
    mz_profile_pages *p = &record->pages;
    if (json_unpack(root, "{s:I, s:s, s:I, s:I, s:I, s:b, s:b, s:F, s:F, s:I, s:I, s:o, s:o, s:o}",
                    "measured_s", &measured_s, "cpu", &cpu, "cores", &cores, "device", &device,
                    "file_system", &system, "direct", &direct, "quick", &quick, "write_bytes_per_s",
                    &record->write_bytes_per_s, "memcpy_bytes_per_s", &record->memcpy_bytes_per_s,
                    "knee_request_bytes", &knee_request, "knee_depth", &knee_depth, "reads", &reads,
                    "codecs", &codecs, "pages", &pages) != 0 ||
        strlen(cpu) >= sizeof record->cpu) {
        return false;
    }
    memcpy(record->cpu, cpu, strlen(cpu) + 1);
    record->measured_s = (uint64_t)measured_s;
    record->cores = (uint32_t)cores;
    record->device = (uint64_t)device;
    record->file_system = (uint64_t)system;
    record->direct = direct != 0;
    record->quick = quick != 0;
    record->knee_request_bytes = (uint32_t)knee_request;
    record->knee_depth = (uint32_t)knee_depth;
    return json_unpack(pages, "{s:F, s:F, s:F, s:F}", "small_bytes_per_s", &p->small_bytes_per_s,
                       "huge_bytes_per_s", &p->huge_bytes_per_s, "small_all_bytes_per_s",
                       &p->small_all_bytes_per_s, "huge_all_bytes_per_s",
                       &p->huge_all_bytes_per_s) == 0 &&
           read_reads(reads, record) && read_codecs(codecs, record);
}

static bool has_all_codecs(const mz_profile_record *record)
{
    for (size_t i = 0; mz_codec_at(i) != NULL; i++) {
        if (mz_profile_wants(mz_codec_at(i)) &&
            mz_profile_summary(record, mz_codec_at(i)->name, NULL).decode_bytes_per_s <= 0) {
            return false;
        }
    }
    return true;
}

mz_status mz_profile_load(const char *path, const mz_profile_record *expected,
                          mz_profile_record *record, mz_error *error)
{
    if (access(path, R_OK) != 0) {
        return mz_error_set(error, MZ_E_NOTFOUND, errno,
                            "there is no profile yet; run mzcache profile");
    }
    json_error_t reason;
    json_t *root = json_load_file(path, 0, &reason);
    mz_profile_record read;
    memset(&read, 0, sizeof read);
    const bool other_version =
        root != NULL && json_integer_value(json_object_get(root, "version")) != RECORD_VERSION;
    const bool good = root != NULL && !other_version && record_from_json(root, &read);
    json_decref(root);
    if (other_version || (good && !has_all_codecs(&read))) {
        return mz_error_set(error, MZ_E_CHANGED, 0,
                            "the profile %s is of another version; run mzcache profile again",
                            path);
    }
    if (!good) {
        return mz_error_set(error, MZ_E_CORRUPT, 0,
                            "the profile %s is damaged; run mzcache profile again", path);
    }
    if (expected != NULL &&
        (strcmp(read.cpu, expected->cpu) != 0 || read.cores != expected->cores ||
         read.device != expected->device || read.file_system != expected->file_system)) {
        return mz_error_set(error, MZ_E_CORRUPT, 0,
                            "the profile %s is of another machine; run mzcache profile again",
                            path);
    }
    *record = read;
    return MZ_OK;
}

static double best_read(const mz_profile_record *record)
{
    double best = 0;
    for (uint32_t i = 0; i < record->read_count; i++) {
        best = record->reads[i].bytes_per_s > best ? record->reads[i].bytes_per_s : best;
    }
    return best;
}

void mz_profile_find_knee(mz_profile_record *record)
{
    double wanted = best_read(record) * KNEE_SHARE;
    record->knee_request_bytes = 0;
    record->knee_depth = 0;
    for (uint32_t i = 0; i < record->read_count; i++) {
        const mz_profile_read *r = &record->reads[i];
        bool smaller =
            record->knee_request_bytes == 0 || r->request_bytes < record->knee_request_bytes ||
            (r->request_bytes == record->knee_request_bytes && r->depth < record->knee_depth);
        if (r->bytes_per_s >= wanted && smaller) {
            record->knee_request_bytes = r->request_bytes;
            record->knee_depth = r->depth;
        }
    }
}

bool mz_profile_is_stale(const mz_profile_record *record, uint64_t now_s)
{
    /* A time to come, from a clock that was set since, counts as long ago. */
    return record->quick && now_s - record->measured_s >= MZ_PROFILE_QUICK_AGE_S;
}

static void keep_better(double *rate, double older)
{
    *rate = older > *rate ? older : *rate;
}

void mz_profile_keep_better(mz_profile_record *record, const mz_profile_record *older)
{
    for (uint32_t i = 0; i < record->read_count; i++) {
        mz_profile_read *r = &record->reads[i];
        for (uint32_t k = 0; k < older->read_count; k++) {
            const mz_profile_read *o = &older->reads[k];
            if (o->request_bytes == r->request_bytes && o->depth == r->depth) {
                keep_better(&r->bytes_per_s, o->bytes_per_s);
            }
        }
    }
    for (uint32_t i = 0; i < record->codec_count; i++) {
        mz_profile_codec *c = &record->codecs[i];
        for (uint32_t k = 0; k < older->codec_count; k++) {
            const mz_profile_codec *o = &older->codecs[k];
            if (strcmp(o->codec, c->codec) == 0 && strcmp(o->variant, c->variant) == 0 &&
                o->threads == c->threads) {
                keep_better(&c->encode_bytes_per_s, o->encode_bytes_per_s);
                keep_better(&c->decode_bytes_per_s, o->decode_bytes_per_s);
            }
        }
    }
    keep_better(&record->pages.small_bytes_per_s, older->pages.small_bytes_per_s);
    keep_better(&record->pages.huge_bytes_per_s, older->pages.huge_bytes_per_s);
    keep_better(&record->pages.small_all_bytes_per_s, older->pages.small_all_bytes_per_s);
    keep_better(&record->pages.huge_all_bytes_per_s, older->pages.huge_all_bytes_per_s);
    keep_better(&record->write_bytes_per_s, older->write_bytes_per_s);
    keep_better(&record->memcpy_bytes_per_s, older->memcpy_bytes_per_s);
    mz_profile_find_knee(record);
}

/* Best decode rate of a codec by a variant (NULL: any); 0 if there is none. */
static double best_decode(const mz_profile_record *record, const char *codec, const char *variant)
{
    double best = 0;
    for (uint32_t i = 0; i < record->codec_count; i++) {
        const mz_profile_codec *c = &record->codecs[i];
        if (strcmp(c->codec, codec) == 0 && c->decode_bytes_per_s > best &&
            (variant == NULL || strcmp(c->variant, variant) == 0)) {
            best = c->decode_bytes_per_s;
        }
    }
    return best;
}

mz_profile mz_profile_summary(const mz_profile_record *record, const char *codec,
                              const char *variant)
{
    mz_profile summary = {best_read(record), 0, record->write_bytes_per_s};
    if (codec != NULL) {
        summary.decode_bytes_per_s = best_decode(record, codec, variant);
        if (summary.decode_bytes_per_s <= 0) {
            summary.decode_bytes_per_s = best_decode(record, codec, NULL);
        }
    }
    return summary;
}

mz_profile mz_profile_rates(const mz_profile_record *record, const char *codec)
{
    /* A flash disk and one core: of AVX2 for q8, any for the entropy coder in lossless,
     * AVX2 for that of cachegen. */
    mz_profile assumed = {2.0e9, 8.0e9, 1.5e9};
    if (codec != NULL && strcmp(codec, "lossless") == 0) {
        assumed.decode_bytes_per_s = 3.0e9;
    } else if (codec != NULL && strcmp(codec, "cachegen") == 0) {
        assumed.decode_bytes_per_s = 2.0e9;
    }
    if (record == NULL) {
        return assumed;
    }
    mz_profile rates = mz_profile_summary(record, codec, mz_kernels_get()->name);
    if (rates.decode_bytes_per_s <= 0) {
        rates.decode_bytes_per_s = assumed.decode_bytes_per_s;
    }
    return rates;
}
