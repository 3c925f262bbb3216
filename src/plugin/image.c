/* SPDX-License-Identifier: MIT */
/*
 * See image.h. An image is named by its identity: a hash of all that decides what is in it. These
 * are the model file (size, modification time, GGUF header, and samples of its data, because a file
 * may have been put in place with an old time), the places of the weights, and the order of bytes
 * that this CPU's kernels want, which is found by repacking a sample. So an image is right or it is
 * not found. It is written under a name of its own, brought to the device and only then renamed.
 *
 * Rejected: repacking at each restore. It would need no room on flash, but it costs more CPU time
 * than a read, just when inference needs the CPU.
 */
#include "plugin/image.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "os/direct_io.h"
#include "os/directory.h"
#include "plugin/weight_map.h"

#define IMAGE_MAGIC "MZIMAGE1"
#define IMAGE_PATH_BYTES 512

/* Pages of the model's data that are part of the identity, evenly spread. */
#define SAMPLE_PAGES 64

/* How much of the GGUF header is read at once. */
#define READ_BYTES (1u << 20)

/* What decides the contents of an image. */
typedef struct image_identity {
    uint64_t model;  /* the model file */
    uint64_t places; /* what of it is used, where that stands, and in which order of bytes */
} image_identity;

typedef struct image_header {
    char magic[8];
    image_identity identity;
    uint64_t bytes;    /* of the whole image */
    uint64_t checksum; /* XXH3 of the fields above */
} image_header;

static image_header header_make(const mz_arena *arena, image_identity identity)
{
    image_header header = {.identity = identity,
                           .bytes = MZ_IMAGE_DATA_OFFSET + arena->memory_bytes};
    memcpy(header.magic, IMAGE_MAGIC, sizeof header.magic);
    header.checksum = XXH3_64bits(&header, offsetof(image_header, checksum));
    return header;
}

static mz_status hash_range(XXH3_state_t *hash, mz_file *model, uint64_t offset, uint64_t bytes,
                            uint8_t *buffer, mz_error *error)
{
    while (bytes > 0) {
        uint64_t take = bytes < READ_BYTES ? bytes : READ_BYTES;
        mz_status status = mz_file_read_buffered(model, buffer, take, offset, error);
        if (status != MZ_OK) {
            return status;
        }
        XXH3_64bits_update(hash, buffer, take);
        offset += take;
        bytes -= take;
    }
    return MZ_OK;
}

/* The model file: what it is, its GGUF header, and samples of its data. */
static mz_status hash_model(XXH3_state_t *hash, const mz_weight_map *map, mz_file *model,
                            mz_error *error)
{
    uint8_t *buffer = malloc(READ_BYTES);
    if (buffer == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory to look at %.120s", map->path);
    }
    XXH3_64bits_update(hash, &model->bytes, sizeof model->bytes);
    XXH3_64bits_update(hash, &model->mtime_ns, sizeof model->mtime_ns);
    mz_status status = hash_range(hash, model, 0, map->data_offset, buffer, error);
    uint64_t pages = (model->bytes - map->data_offset) / MZ_PAGE_BYTES;
    for (uint64_t i = 0; i < SAMPLE_PAGES && pages > 0 && status == MZ_OK; i++) {
        uint64_t offset = map->data_offset + i * pages / SAMPLE_PAGES * MZ_PAGE_BYTES;
        status = hash_range(hash, model, offset, MZ_PAGE_BYTES, buffer, error);
    }
    free(buffer);
    return status;
}

static void hash_places(XXH3_state_t *hash, const mz_arena *arena)
{
    const mz_weight_map *map = arena->map;
    const char *version = arena->plugin->host.ggml_version();
    XXH3_64bits_update(hash, version, strlen(version));
    for (size_t i = 0; i < map->count; i++) {
        const mz_map_entry *entry = &map->entries[i];
        if (!entry->used) {
            continue;
        }
        uint64_t layout =
            entry->repacked != NULL ? mz_repack_layout(arena->plugin, entry->repacked) : 0;
        uint64_t numbers[] = {entry->file_offset, entry->bytes,
                              (uint64_t)(entry->address - arena->memory), layout};
        XXH3_64bits_update(hash, numbers, sizeof numbers);
    }
}

static mz_status find_identity(const mz_arena *arena, mz_file *model, image_identity *identity,
                               mz_error *error)
{
    XXH3_state_t *hash = XXH3_createState();
    if (hash == NULL) {
        return mz_error_set(error, MZ_E_NOMEM, 0, "no memory for a hash");
    }
    XXH3_64bits_reset(hash);
    mz_status status = hash_model(hash, arena->map, model, error);
    identity->model = XXH3_64bits_digest(hash);
    XXH3_64bits_reset(hash);
    hash_places(hash, arena);
    identity->places = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    return status;
}

/* Whether a whole image of this identity stands at `path`. */
static bool is_image(const mz_arena *arena, const char *path, image_identity identity)
{
    mz_file file;
    mz_error ignored = MZ_ERROR_INIT;
    image_header found;
    image_header wanted = header_make(arena, identity);
    if (mz_file_open(&file, arena->plugin->os, path, &ignored) != MZ_OK) {
        return false;
    }
    bool is_right = file.bytes == wanted.bytes &&
                    mz_file_read_buffered(&file, &found, sizeof found, 0, &ignored) == MZ_OK &&
                    memcmp(&found, &wanted, sizeof found) == 0;
    mz_file_close(&file);
    return is_right;
}

/* Where an image is made: the files, and memory for one region as it will be and as it is read. */
typedef struct image_writer {
    const mz_arena *arena;
    mz_file *model;
    mz_file file;
    uint8_t *region;   /* [room] pages as they will stand in the arena */
    uint8_t *original; /* [room] bytes of one weight as the model file has them */
    uint64_t room;
} image_writer;

/* First and last page of a region, as offsets in the arena's memory. */
static void region_bounds(const mz_arena *arena, size_t first, size_t end, uint64_t *begins,
                          uint64_t *ends)
{
    const mz_map_entry *entries = arena->map->entries;
    const mz_map_entry *last = &entries[end - 1];
    *begins = mz_page_floor((uint64_t)(entries[first].address - arena->memory));
    *ends = mz_page_ceil((uint64_t)(last->address - arena->memory) + last->bytes);
}

static mz_status write_region(image_writer *writer, size_t first, size_t end, mz_error *error)
{
    const mz_arena *arena = writer->arena;
    uint64_t begins = 0, ends = 0;
    region_bounds(arena, first, end, &begins, &ends);
    memset(writer->region, 0, ends - begins);
    for (size_t i = first; i < end; i++) {
        const mz_map_entry *entry = &arena->map->entries[i];
        uint8_t *target = writer->region + ((uint64_t)(entry->address - arena->memory) - begins);
        uint8_t *read = entry->repacked != NULL ? writer->original : target;
        if (!entry->used) {
            continue;
        }
        mz_status status =
            mz_file_read_buffered(writer->model, read, entry->bytes, entry->file_offset, error);
        if (status != MZ_OK) {
            return status;
        }
        if (entry->repacked != NULL) {
            mz_repack_convert(arena->plugin, entry->repacked, read, target);
        }
    }
    return mz_file_write(&writer->file, writer->region, ends - begins,
                         MZ_IMAGE_DATA_OFFSET + begins, error);
}

static mz_status write_regions(image_writer *writer, image_identity identity, mz_error *error)
{
    const mz_weight_map *map = writer->arena->map;
    image_header header = header_make(writer->arena, identity);
    mz_status status = MZ_OK;
    for (size_t first = 0; first < map->count && status == MZ_OK;) {
        size_t end = mz_weight_map_region_end(map, first);
        if (mz_weight_map_has_repacked(map, first, end)) {
            status = write_region(writer, first, end, error);
        }
        first = end;
    }
    /* The last byte makes the file as long as the arena; regions in between may be holes. */
    if (status == MZ_OK) {
        status = mz_file_extend(&writer->file, header.bytes, error);
    }
    if (status == MZ_OK) {
        status = mz_file_write(&writer->file, &header, sizeof header, 0, error);
    }
    return status == MZ_OK ? mz_file_changed(writer->model, error) : status;
}

static uint64_t largest_region(const mz_arena *arena)
{
    uint64_t largest = 0;
    for (size_t first = 0; first < arena->map->count;) {
        size_t end = mz_weight_map_region_end(arena->map, first);
        uint64_t begins = 0, ends = 0;
        region_bounds(arena, first, end, &begins, &ends);
        largest = ends - begins > largest ? ends - begins : largest;
        first = end;
    }
    return largest;
}

static mz_status write_image(const mz_arena *arena, mz_file *model, const char *path,
                             image_identity identity, mz_error *error)
{
    const mz_os *os = arena->plugin->os;
    char scratch[IMAGE_PATH_BYTES + 64];
    snprintf(scratch, sizeof scratch, "%s.%ld.tmp", path, (long)getpid());
    image_writer writer = {.arena = arena, .model = model, .room = largest_region(arena)};
    mz_status status = mz_file_create(&writer.file, os, scratch, error);
    if (status != MZ_OK) {
        return status;
    }
    void *memory = NULL;
    status = mz_memory_reserve(os, 2 * writer.room, MZ_HUGE_BYTES, &memory, error);
    if (status == MZ_OK) {
        writer.region = memory;
        writer.original = writer.region + writer.room;
        status = write_regions(&writer, identity, error);
        mz_memory_release(os, memory, 2 * writer.room);
    }
    if (status == MZ_OK) {
        status = mz_file_publish(&writer.file, scratch, path, error);
    }
    mz_file_drop_cache(&writer.file, 0, MZ_IMAGE_DATA_OFFSET + arena->memory_bytes);
    mz_file_close(&writer.file);
    if (status != MZ_OK) {
        (void)os->unlink(os->context, scratch); /* the first failure is the one to report */
    }
    return status;
}

/* "DIRECTORY/weights-<model's path>-<model's contents>-": images of a model begin so. */
static void image_prefix(const mz_arena *arena, const char *directory, uint64_t model, char *prefix,
                         size_t capacity)
{
    const char *path = arena->map->path;
    snprintf(prefix, capacity, "%s/weights-%016llx-%016llx-", directory,
             (unsigned long long)XXH3_64bits(path, strlen(path)), (unsigned long long)model);
}

/* Delete the images of what the model file was before: nobody will find them again. */
static void delete_stale(const mz_arena *arena, const char *directory, uint64_t model)
{
    char current[IMAGE_PATH_BYTES], pattern[IMAGE_PATH_BYTES];
    glob_t found;
    image_prefix(arena, directory, model, current, sizeof current);
    size_t length = strlen(current);
    /* The same up to the contents: 16 digits and a dash. */
    snprintf(pattern, sizeof pattern, "%.*s*.image", (int)(length - 17), current);
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            if (strncmp(found.gl_pathv[i], current, length) != 0) {
                (void)arena->plugin->os->unlink(arena->plugin->os->context, found.gl_pathv[i]);
            }
        }
        globfree(&found);
    }
}

static mz_status find_or_write(mz_arena *arena, mz_file *model, int32_t *source, mz_error *error)
{
    mz_plugin *plugin = arena->plugin;
    mz_pool_status now;
    char prefix[IMAGE_PATH_BYTES], path[IMAGE_PATH_BYTES + 32];
    image_identity identity = {0};
    mz_status status = find_identity(arena, model, &identity, error);
    if (status != MZ_OK) {
        return status;
    }
    mz_status_get(plugin->pool, &now);
    image_prefix(arena, now.store_dir, identity.model, prefix, sizeof prefix);
    snprintf(path, sizeof path, "%s%016llx.image", prefix, (unsigned long long)identity.places);
    if (!is_image(arena, path, identity)) {
        mz_directory_make(now.store_dir);
        delete_stale(arena, now.store_dir, identity.model);
        mz_log(&plugin->log, MZ_LOG_WARN,
               "repacking the quantized weights of %.120s into %.160s; done once per model",
               arena->map->path, path);
        status = write_image(arena, model, path, identity, error);
    }
    return status == MZ_OK ? mz_pool_add_source(plugin->pool, path, source, error) : status;
}

mz_status mz_image_open(mz_arena *arena, int32_t *source, mz_error *error)
{
    mz_file model;
    mz_status status = mz_file_open(&model, arena->plugin->os, arena->map->path, error);
    if (status == MZ_OK) {
        status = find_or_write(arena, &model, source, error);
        mz_file_close(&model);
    }
    return status;
}
