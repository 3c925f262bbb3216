/* SPDX-License-Identifier: MIT */
/*
 * Read the body and the query of a POST; see request.h.
 *
 * jansson checks the JSON (UTF-8, depth, duplicate keys); here every key and type is checked, and
 * unknown keys are refused so that a misspelt "tags" does not evict everything. Sizes go through
 * mz_size_parse, so that the command line and the socket understand the same words.
 */
#include "control/request.h"

#include <jansson.h>
#include <string.h>

#include "base/pressure_level.h"

/* The object in the body; *object is NULL when there is no body. The caller decrefs it. */
static mz_status load_object(const char *body, size_t body_bytes, json_t **object, mz_error *error)
{
    *object = NULL;
    if (body_bytes == 0) {
        return MZ_OK;
    }
    json_error_t where;
    json_t *value = json_loadb(body, body_bytes, JSON_REJECT_DUPLICATES, &where);
    if (value == NULL) {
        return mz_error_set(error, MZ_E_INVALID, 0, "the body is not JSON: line %d: %s", where.line,
                            where.text);
    }
    if (!json_is_object(value)) {
        json_decref(value);
        return mz_error_set(error, MZ_E_INVALID, 0, "the body must be a JSON object");
    }
    *object = value;
    return MZ_OK;
}

static mz_status refuse_key(const char *key, mz_error *error)
{
    return mz_error_set(error, MZ_E_INVALID, 0, "unknown key \"%.40s\"", key);
}

static mz_status parse_size_text(const char *text, mz_size *size, mz_error *error)
{
    if (!mz_size_parse(text, size)) {
        return mz_error_set(error, MZ_E_INVALID, 0,
                            "\"%.40s\" is no size; write 1048576, 512M, 1.5G or 40%%", text);
    }
    if (size->is_percent ? !(size->percent > 0) : size->bytes == 0) {
        return mz_error_set(error, MZ_E_INVALID, 0, "bytes must be above 0");
    }
    return MZ_OK;
}

static mz_status parse_size_json(const json_t *value, mz_size *size, mz_error *error)
{
    if (json_is_string(value)) {
        return parse_size_text(json_string_value(value), size, error);
    }
    if (!json_is_integer(value)) {
        return mz_error_set(error, MZ_E_INVALID, 0, "bytes must be an integer or a text like 512M");
    }
    if (json_integer_value(value) <= 0) {
        return mz_error_set(error, MZ_E_INVALID, 0, "bytes must be above 0");
    }
    *size = (mz_size){.is_percent = false, .bytes = (uint64_t)json_integer_value(value)};
    return MZ_OK;
}

/* Add the tag of this name, `length` bytes, to the set. */
static mz_status add_tag(const char *name, size_t length, unsigned *tags, mz_error *error)
{
    if (length == strlen("weights") && memcmp(name, "weights", length) == 0) {
        *tags |= MZ_TAG_WEIGHTS;
    } else if (length == strlen("kv_cache") && memcmp(name, "kv_cache", length) == 0) {
        *tags |= MZ_TAG_KV_CACHE;
    } else {
        return mz_error_set(error, MZ_E_INVALID, 0,
                            "unknown tag \"%.*s\"; the tags are weights and kv_cache",
                            (int)(length < 40 ? length : 40), name);
    }
    return MZ_OK;
}

static mz_status parse_tags_text(const char *text, unsigned *tags, mz_error *error)
{
    mz_status status;
    do {
        size_t length = strcspn(text, ",");
        status = add_tag(text, length, tags, error);
        text += length;
    } while (status == MZ_OK && *text++ == ',');
    return status;
}

static mz_status parse_tags_json(const json_t *value, unsigned *tags, mz_error *error)
{
    if (!json_is_array(value) || json_array_size(value) == 0) {
        return mz_error_set(error, MZ_E_INVALID, 0,
                            "tags must be a list of \"weights\" and \"kv_cache\"");
    }
    mz_status status = MZ_OK;
    size_t index;
    json_t *item;
    json_array_foreach(value, index, item)
    {
        if (!json_is_string(item)) {
            return mz_error_set(error, MZ_E_INVALID, 0, "a tag must be a text");
        }
        status = add_tag(json_string_value(item), json_string_length(item), tags, error);
        if (status != MZ_OK) {
            break;
        }
    }
    return status;
}

/* Read the keys of an eviction's body; refuses what the query has said before. */
static mz_status read_evict_object(json_t *object, bool *has_size, mz_control_evict *evict,
                                   mz_error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        mz_status status;
        if (strcmp(key, "bytes") == 0 && !*has_size) {
            status = parse_size_json(value, &evict->size, error);
            *has_size = true;
        } else if (strcmp(key, "tags") == 0 && evict->tags == 0) {
            status = parse_tags_json(value, &evict->tags, error);
        } else if (strcmp(key, "bytes") == 0 || strcmp(key, "tags") == 0) {
            status =
                mz_error_set(error, MZ_E_INVALID, 0, "%s is in the query and in the body", key);
        } else {
            status = refuse_key(key, error);
        }
        if (status != MZ_OK) {
            return status;
        }
    }
    return MZ_OK;
}

mz_status mz_control_parse_evict(const char *query_bytes, const char *query_tags, const char *body,
                                 size_t body_bytes, mz_control_evict *evict, mz_error *error)
{
    mz_control_evict read = {.tags = 0};
    bool has_size = query_bytes != NULL;
    mz_status status = MZ_OK;
    if (query_bytes != NULL) {
        status = parse_size_text(query_bytes, &read.size, error);
    }
    if (status == MZ_OK && query_tags != NULL) {
        status = parse_tags_text(query_tags, &read.tags, error);
    }
    if (status != MZ_OK) {
        return status;
    }
    json_t *object;
    status = load_object(body, body_bytes, &object, error);
    if (status == MZ_OK && object != NULL) {
        status = read_evict_object(object, &has_size, &read, error);
        json_decref(object);
    }
    if (status != MZ_OK) {
        return status;
    }
    if (!has_size) {
        return mz_error_set(error, MZ_E_INVALID, 0,
                            "say how much: {\"bytes\": \"512M\"} or ?bytes=512M");
    }
    if (read.tags == 0) {
        read.tags = MZ_TAG_ALL;
    }
    *evict = read;
    return MZ_OK;
}

mz_status mz_control_parse_prefetch(const char *query_wait, const char *body, size_t body_bytes,
                                    bool *wait, mz_error *error)
{
    bool waits = false;
    if (query_wait != NULL) {
        waits = strcmp(query_wait, "true") == 0;
        if (!waits && strcmp(query_wait, "false") != 0) {
            return mz_error_set(error, MZ_E_INVALID, 0, "wait must be true or false");
        }
    }
    json_t *object;
    mz_status status = load_object(body, body_bytes, &object, error);
    if (status != MZ_OK) {
        return status;
    }
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        if (strcmp(key, "wait") != 0) {
            status = refuse_key(key, error);
        } else if (query_wait != NULL || !json_is_boolean(value)) {
            status = mz_error_set(error, MZ_E_INVALID, 0,
                                  "wait must be true or false, in the query or in the body");
        } else {
            waits = json_is_true(value);
        }
        if (status != MZ_OK) {
            break;
        }
    }
    json_decref(object);
    if (status == MZ_OK) {
        *wait = waits;
    }
    return status;
}

static mz_status parse_level(const char *text, mz_pressure_level *level, mz_error *error)
{
    mz_pressure_level read = MZ_PRESSURE_NONE;
    if (text == NULL || !mz_pressure_level_parse(text, &read) || read == MZ_PRESSURE_NONE) {
        return mz_error_set(error, MZ_E_INVALID, 0, "level must be low, medium or critical");
    }
    *level = read;
    return MZ_OK;
}

mz_status mz_control_parse_pressure(const char *query_level, const char *body, size_t body_bytes,
                                    mz_pressure_level *level, mz_error *error)
{
    json_t *object;
    mz_status status = load_object(body, body_bytes, &object, error);
    if (status != MZ_OK) {
        return status;
    }
    const char *text = query_level;
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        if (strcmp(key, "level") != 0) {
            status = refuse_key(key, error);
        } else if (query_level != NULL) {
            status =
                mz_error_set(error, MZ_E_INVALID, 0, "level is in the query and in the body");
        } else {
            text = json_string_value(value);
        }
        if (status != MZ_OK) {
            break;
        }
    }
    if (status == MZ_OK) {
        status = parse_level(text, level, error);
    }
    json_decref(object);
    return status;
}
