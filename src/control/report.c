/* SPDX-License-Identifier: MIT */
/*
 * Two views of mz_pool_status from one list of its fields.
 *
 * Each number of the struct stands once in a table below with its name, its place and what it
 * means; JSON and metrics walk the same tables, so a field cannot be in one and not in the other.
 * Numbers are printed as integers (nanoseconds become seconds by digits): a host may have set a
 * locale with a decimal comma, which Prometheus would refuse.
 */
#include "control/report.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum field_kind { FIELD_GAUGE, FIELD_COUNTER, FIELD_NS } field_kind;

typedef struct field {
    const char *name;   /* in JSON; of the struct's field */
    size_t offset;      /* of its uint64_t */
    const char *metric; /* without "mzcache_" */
    field_kind kind;
    const char *help;
} field;

#define TAG_FIELD(name, help) {#name, offsetof(mz_tag_status, name), #name, FIELD_GAUGE, help}
#define POOL_FIELD(name, metric, kind, help)                                                       \
    {#name, offsetof(mz_pool_status, name), metric, kind, help}

static const field tag_fields[] = {
    TAG_FIELD(total_units, "Units known."),
    TAG_FIELD(resident_units, "Units in place."),
    TAG_FIELD(compressed_units, "Units in the in-memory stack."),
    TAG_FIELD(stored_units, "Units on flash."),
    TAG_FIELD(lost_units, "Units whose stored copy was damaged."),
    TAG_FIELD(total_bytes, "Bytes if everything were resident."),
    TAG_FIELD(resident_bytes, "Bytes in place."),
    TAG_FIELD(compressed_bytes, "Bytes that compressed units take in the stack."),
    TAG_FIELD(stored_bytes, "Bytes that stored units would take in place."),
    TAG_FIELD(clean_bytes, "Resident bytes that flash also holds."),
};

static const field pool_fields[] = {
    POOL_FIELD(stack_bytes, "stack_bytes", FIELD_GAUGE, "Memory mapped by the stack."),
    POOL_FIELD(store_bytes, "store_bytes", FIELD_GAUGE, "Room taken in the store file."),
    POOL_FIELD(written_bytes, "written_bytes_total", FIELD_COUNTER, "Bytes written to flash."),
    POOL_FIELD(read_bytes, "read_bytes_total", FIELD_COUNTER, "Bytes read from flash."),
    POOL_FIELD(decoded_bytes, "decoded_bytes_total", FIELD_COUNTER, "KV bytes decoded."),
    POOL_FIELD(in_place_bytes, "in_place_bytes_total", FIELD_COUNTER,
               "Compressed KV bytes that attention read without a restore."),
    POOL_FIELD(decode_ns, "decode_seconds_total", FIELD_NS,
               "Time that threads decoded, added up."),
    POOL_FIELD(evictions, "evictions_total", FIELD_COUNTER, "Evictions that freed something."),
    POOL_FIELD(restores, "restores_total", FIELD_COUNTER, "Units restored."),
    POOL_FIELD(last_evict_bytes, "last_evict_bytes", FIELD_GAUGE,
               "Bytes asked for by the last eviction."),
    POOL_FIELD(last_freed_bytes, "last_freed_bytes", FIELD_GAUGE,
               "Bytes freed by the last eviction."),
    POOL_FIELD(last_evict_ns, "last_evict_seconds", FIELD_NS, "Time of the last eviction."),
    POOL_FIELD(last_restore_ns, "last_restore_seconds", FIELD_NS, "Time of the last restore."),
    POOL_FIELD(last_stall_ns, "last_stall_seconds", FIELD_NS,
               "Time that computing waited for units in the last restore."),
    POOL_FIELD(stall_ns, "stall_seconds_total", FIELD_NS, "Time that computing waited for units."),
    POOL_FIELD(steps, "steps_total", FIELD_COUNTER, "Sub-graphs computed."),
    POOL_FIELD(plan_read_bytes_per_s, "plan_read_bytes_per_second", FIELD_GAUGE,
               "Rate of reading that plans reckon with."),
    POOL_FIELD(plan_decode_bytes_per_s, "plan_decode_bytes_per_second", FIELD_GAUGE,
               "Rate of decoding that plans reckon with."),
};

#define PRESSURE_FIELD(name, metric, kind, help)                                                   \
    {#name, offsetof(mz_pool_status, pressure.name), metric, kind, help}

/* Of the object "pressure". */
static const field pressure_fields[] = {
    PRESSURE_FIELD(signals, "pressure_signals_total", FIELD_COUNTER, "Signs of pressure noticed."),
    PRESSURE_FIELD(evictions, "pressure_evictions_total", FIELD_COUNTER,
                   "Evictions made by itself that freed something."),
    PRESSURE_FIELD(freed_bytes, "pressure_freed_bytes_total", FIELD_COUNTER,
                   "Bytes freed by evictions made by itself."),
    PRESSURE_FIELD(last_bytes, "pressure_last_freed_bytes", FIELD_GAUGE,
                   "Bytes freed by the last eviction made by itself."),
    PRESSURE_FIELD(last_reaction_ns, "pressure_last_reaction_seconds", FIELD_NS,
                   "From the last signal that was answered to its memory free."),
};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static uint64_t field_value(const void *base, const field *one)
{
    uint64_t value;
    memcpy(&value, (const char *)base + one->offset, sizeof value);
    return value;
}

json_t *mz_control_json_integer(uint64_t value)
{
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

/* Text that may not be UTF-8 (a path): the bytes that JSON cannot hold become '?'. */
static json_t *json_text(const char *text)
{
    json_t *value = json_string(text);
    if (value != NULL) {
        return value;
    }
    char *plain = strdup(text);
    if (plain == NULL) {
        return NULL;
    }
    for (char *c = plain; *c != 0; c++) {
        if ((unsigned char)*c >= 0x80) {
            *c = '?';
        }
    }
    value = json_string(plain);
    free(plain);
    return value;
}

/* Add the fields of `base` to the object. Returns 0, or -1 when there is no memory. */
static int add_fields(json_t *object, const void *base, const field *fields, size_t count)
{
    int failed = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t value = field_value(base, &fields[i]);
        failed |= json_object_set_new(object, fields[i].name, mz_control_json_integer(value));
    }
    return failed;
}

static json_t *tag_json(const mz_tag_status *tag)
{
    json_t *object = json_object();
    if (object != NULL && add_fields(object, tag, tag_fields, COUNT_OF(tag_fields)) != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *pressure_json(const mz_pool_status *status)
{
    const mz_pressure_status *pressure = &status->pressure;
    json_t *object = json_object();
    if (object == NULL) {
        return NULL;
    }
    int failed = add_fields(object, status, pressure_fields, COUNT_OF(pressure_fields));
    failed |= json_object_set_new(object, "watching", json_boolean(pressure->watching));
    failed |= json_object_set_new(object, "level",
                                  json_string(mz_pressure_level_name(pressure->level)));
    failed |= json_object_set_new(object, "ago_ns", mz_control_json_integer(pressure->ago_ns));
    failed |= json_object_set_new(object, "reason", json_text(pressure->reason));
    failed |= json_object_set_new(object, "sources", json_text(pressure->sources));
    if (failed != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

json_t *mz_control_status_json(const mz_pool_status *status, const mz_control_identity *identity)
{
    json_t *object = json_object();
    if (object == NULL) {
        return NULL;
    }
    int failed = 0;
    failed |= json_object_set_new(object, "pid", json_integer(identity->pid));
    failed |= json_object_set_new(object, "version", json_string(mz_version()));
    failed |= json_object_set_new(object, "uptime_s", mz_control_json_integer(identity->uptime_s));
    failed |= json_object_set_new(object, "weights", tag_json(&status->weights));
    failed |= json_object_set_new(object, "kv_cache", tag_json(&status->kv_cache));
    failed |= add_fields(object, status, pool_fields, COUNT_OF(pool_fields));
    failed |= json_object_set_new(object, "restoring", json_boolean(status->restoring));
    failed |= json_object_set_new(object, "codec", json_text(status->codec));
    failed |= json_object_set_new(object, "store_dir", json_text(status->store_dir));
    failed |= json_object_set_new(object, "rates", json_text(status->rates));
    failed |= json_object_set_new(object, "rates_note", json_text(status->rates_note));
    failed |= json_object_set_new(object, "pressure", pressure_json(status));
    failed |= json_object_set_new(object, "last_error", json_text(status->last_error));
    if (failed != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static void print_head(FILE *out, const char *metric, const char *type, const char *help)
{
    fprintf(out, "# HELP mzcache_%s %s\n# TYPE mzcache_%s %s\n", metric, help, metric, type);
}

static void print_pool_field(FILE *out, const mz_pool_status *status, const field *one)
{
    const uint64_t second = 1000000000u;
    uint64_t value = field_value(status, one);
    print_head(out, one->metric, one->kind == FIELD_COUNTER ? "counter" : "gauge", one->help);
    if (one->kind == FIELD_NS) {
        fprintf(out, "mzcache_%s %" PRIu64 ".%09" PRIu64 "\n", one->metric, value / second,
                value % second);
    } else {
        fprintf(out, "mzcache_%s %" PRIu64 "\n", one->metric, value);
    }
}

char *mz_control_metrics_text(const mz_pool_status *status, const mz_control_identity *identity)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL) {
        return NULL;
    }
    print_head(out, "info", "gauge", "Always 1; what runs is in the labels.");
    fprintf(out, "mzcache_info{version=\"%s\",pid=\"%d\"} 1\n", mz_version(), identity->pid);
    print_head(out, "uptime_seconds", "gauge", "Time since the socket was opened.");
    fprintf(out, "mzcache_uptime_seconds %" PRIu64 "\n", identity->uptime_s);
    for (size_t i = 0; i < COUNT_OF(tag_fields); i++) {
        const field *one = &tag_fields[i];
        print_head(out, one->metric, "gauge", one->help);
        fprintf(out, "mzcache_%s{tag=\"weights\"} %" PRIu64 "\n", one->metric,
                field_value(&status->weights, one));
        fprintf(out, "mzcache_%s{tag=\"kv_cache\"} %" PRIu64 "\n", one->metric,
                field_value(&status->kv_cache, one));
    }
    for (size_t i = 0; i < COUNT_OF(pool_fields); i++) {
        print_pool_field(out, status, &pool_fields[i]);
    }
    for (size_t i = 0; i < COUNT_OF(pressure_fields); i++) {
        print_pool_field(out, status, &pressure_fields[i]);
    }
    print_head(out, "pressure_level", "gauge", "0 none, 1 low, 2 medium, 3 critical.");
    fprintf(out, "mzcache_pressure_level %d\n", (int)status->pressure.level);
    print_head(out, "restoring", "gauge", "1 while a restore is under way.");
    fprintf(out, "mzcache_restoring %d\n", status->restoring ? 1 : 0);
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}
