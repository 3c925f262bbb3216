/* SPDX-License-Identifier: MIT */
/*
 * The engine's log, and our plug-in in its registry.
 *
 * llama.cpp explains a failure on its log only, so an open listens to it and takes the first error
 * as the reason. ggml keeps one registry per process and a plug-in can't be unloaded, so whoever
 * comes first loads it and everybody later finds it by name; no state of our own is needed for
 * that.
 *
 * The plug-in reads its options from the environment because it must do so in hosts that know
 * nothing of it; we hand ours over the same way instead of keeping a second one.
 */
#include "llm/engine.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama.h"

#define PLUGIN_FILE "libggml-mzcache.so"
#define PLUGIN_REG "MZ"

/* "function: reason\n" without the function and the newline; words with spaces are no function. */
static void copy_reason(const char *line, char *text, size_t capacity)
{
    const char *colon = strstr(line, ": ");
    if (colon != NULL && memchr(line, ' ', (size_t)(colon - line)) == NULL) {
        line = colon + 2;
    }
    snprintf(text, capacity, "%s", line);
    text[strcspn(text, "\r\n")] = '\0';
}

static void log_to_complaint(enum ggml_log_level level, const char *line, void *context)
{
    mz_engine_complaint *complaint = context;
    if (level == GGML_LOG_LEVEL_ERROR && complaint->text[0] == '\0') {
        copy_reason(line, complaint->text, sizeof complaint->text);
    }
}

static void log_to_nobody(enum ggml_log_level level, const char *line, void *context)
{
    (void)level;
    (void)line;
    (void)context;
}

void mz_engine_listen(mz_engine_complaint *complaint)
{
    complaint->text[0] = '\0';
    llama_log_set(log_to_complaint, complaint);
}

void mz_engine_hush(void)
{
    llama_log_set(log_to_nobody, NULL);
}

static bool file_exists(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return false;
    }
    fclose(file);
    return true;
}

void mz_engine_find_plugin(const char *path, char *found, size_t capacity)
{
    if (path != NULL) {
        snprintf(found, capacity, "%s", path);
        return;
    }
    Dl_info self; /* the library that holds this literal: ours */
    if (dladdr((const void *)PLUGIN_FILE, &self) != 0 && self.dli_fname != NULL) {
        const char *slash = strrchr(self.dli_fname, '/');
        int directory = slash != NULL ? (int)(slash + 1 - self.dli_fname) : 0;
        int length = snprintf(found, capacity, "%.*s%s", directory, self.dli_fname, PLUGIN_FILE);
        if (directory > 0 && length > 0 && (size_t)length < capacity && file_exists(found)) {
            return;
        }
    }
    snprintf(found, capacity, "%s", PLUGIN_FILE);
}

static void hand_over_options(const mz_llm_options *options)
{
    const char *const texts[][2] = {
        {"MZCACHE_CODEC", options->codec}, {"MZCACHE_STORE", options->store_dir},
        {"MZCACHE_ORDER", options->order}, {"MZCACHE_OVERLAP", options->overlap},
        {"MZCACHE_PATHS", options->paths}, {"MZCACHE_TRACE", options->trace},
        {"MZCACHE_PRESSURE", options->pressure}, {"MZCACHE_KEEP", options->keep},
        {"MZCACHE_MAX", options->max}, {"MZCACHE_EVICT_STEP", options->evict_step},
        {"MZCACHE_IDLE_EVICT", options->idle_evict},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (texts[i][1] != NULL) {
            setenv(texts[i][0], texts[i][1], 1);
        }
    }
    if (options->restore_depth > 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", options->restore_depth);
        setenv("MZCACHE_RESTORE_DEPTH", number, 1);
    }
}

mz_status mz_engine_load_plugin(const mz_llm_options *options, ggml_backend_reg_t *reg,
                                mz_error *error)
{
    ggml_backend_reg_t known = ggml_backend_reg_by_name(PLUGIN_REG);
    if (known != NULL) {
        *reg = known;
        return MZ_OK;
    }
    char path[512];
    mz_engine_find_plugin(options->plugin_path, path, sizeof path);
    if (strchr(path, '/') != NULL && !file_exists(path)) {
        return mz_error_set(error, MZ_E_NOTFOUND, 0, "no plug-in at %s", path);
    }
    hand_over_options(options);
    mz_engine_complaint complaint;
    mz_engine_listen(&complaint);
    known = ggml_backend_load(path);
    mz_engine_hush();
    if (known == NULL) {
        mz_status status = strchr(path, '/') != NULL ? MZ_E_HOST : MZ_E_NOTFOUND;
        return mz_error_set(error, status, 0, "plug-in not loaded: %s", complaint.text);
    }
    *reg = known;
    return MZ_OK;
}

void mz_llm_plugin_path(char *path, size_t capacity)
{
    mz_engine_find_plugin(NULL, path, capacity);
}

void mz_llm_engine_probe(const char *plugin_path, mz_llm_engine *engine)
{
    memset(engine, 0, sizeof *engine);
    snprintf(engine->version, sizeof engine->version, "%s", ggml_version());
    mz_engine_find_plugin(plugin_path, engine->plugin_path, sizeof engine->plugin_path);
    mz_llm_options options;
    mz_llm_options_default(&options);
    options.plugin_path = plugin_path;
    mz_error error = MZ_ERROR_INIT;
    ggml_backend_reg_t reg = NULL;
    engine->plugin_loaded = mz_engine_load_plugin(&options, &reg, &error) == MZ_OK;
    snprintf(engine->message, sizeof engine->message, "%s", error.text);
}
