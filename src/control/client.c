/* SPDX-License-Identifier: MIT */
/*
 * Requests to control sockets by libcurl; see client.h.
 *
 * The directory is checked as the server checks it, so a socket that somebody else planted is never
 * spoken to. The size of an answer is limited: what answers may be broken. Proxies from the
 * environment are switched off, and so are curl's signals.
 */
#include "control/client.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLY_LIMIT_BYTES ((size_t)1 << 20) /* /metrics has some 10 KB */
#define CONNECT_LIMIT_S 2L
#define URL_BYTES 512

mz_status mz_control_list(const char *directory, mz_control_socket **processes, size_t *count,
                          mz_error *error)
{
    char chosen[MZ_CONTROL_PATH_BYTES];
    mz_status status = MZ_OK;
    if (directory == NULL) {
        status = mz_control_directory_default(chosen, sizeof chosen, error);
        directory = chosen;
    }
    if (status == MZ_OK) {
        status = mz_control_directory_check(directory, error);
    }
    if (status == MZ_E_NOTFOUND) {
        *error = (mz_error)MZ_ERROR_INIT;
        *processes = NULL;
        *count = 0;
        return MZ_OK;
    }
    mz_control_socket *all = NULL;
    size_t found = 0;
    if (status == MZ_OK) {
        status = mz_control_directory_scan(directory, &all, &found, error);
    }
    if (status != MZ_OK) {
        return status;
    }
    size_t alive = 0;
    for (size_t i = 0; i < found; i++) {
        if (all[i].alive) {
            all[alive++] = all[i];
        }
    }
    if (alive == 0) {
        free(all);
        all = NULL;
    }
    *processes = all;
    *count = alive;
    return MZ_OK;
}

/* libcurl's callback: append a piece of the body. Less than offered ends the transfer. */
static size_t take_piece(char *data, size_t one, size_t bytes, void *context)
{
    mz_control_reply *reply = context;
    (void)one; /* always 1 */
    if (bytes > REPLY_LIMIT_BYTES - reply->bytes) {
        return 0;
    }
    char *grown = realloc(reply->body, reply->bytes + bytes + 1);
    if (grown == NULL) {
        return 0;
    }
    memcpy(grown + reply->bytes, data, bytes);
    reply->body = grown;
    reply->bytes += bytes;
    grown[reply->bytes] = 0;
    return bytes;
}

static mz_status status_of_curl(CURLcode code)
{
    switch (code) {
    case CURLE_COULDNT_CONNECT:
        return MZ_E_NOTFOUND;
    case CURLE_OPERATION_TIMEDOUT:
        return MZ_E_BUSY;
    case CURLE_OUT_OF_MEMORY:
        return MZ_E_NOMEM;
    default:
        return MZ_E_IO;
    }
}

/* Set the options that every request has. Returns whether curl took them all. */
static bool set_options(CURL *curl, const char *socket_path, const char *url, long limit_s,
                        mz_control_reply *reply)
{
    return curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, socket_path) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_URL, url) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_PROXY, "") == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_LIMIT_S) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_TIMEOUT, limit_s) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_piece) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_WRITEDATA, reply) == CURLE_OK;
}

/* Set method and body; *headers is to be freed after the request. */
static bool set_body(CURL *curl, const char *method, const char *body, struct curl_slist **headers)
{
    if (strcmp(method, "POST") != 0) {
        return curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method) == CURLE_OK;
    }
    const char *sent = body != NULL ? body : "";
    *headers = curl_slist_append(NULL, "Content-Type: application/json");
    return *headers != NULL && curl_easy_setopt(curl, CURLOPT_HTTPHEADER, *headers) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)strlen(sent)) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_COPYPOSTFIELDS, sent) == CURLE_OK;
}

mz_status mz_control_request(const char *socket_path, const char *method, const char *target,
                             const char *body, long limit_s, mz_control_reply *reply,
                             mz_error *error)
{
    char url[URL_BYTES];
    int length = snprintf(url, sizeof url, "http://localhost%s", target);
    if (length < 0 || (size_t)length >= sizeof url) {
        return mz_error_set(error, MZ_E_INVALID, 0, "the path of the request is too long");
    }
    mz_control_reply got = {.body = calloc(1, 1)};
    struct curl_slist *headers = NULL;
    mz_status status = MZ_OK;
    CURL *curl = curl_easy_init();
    if (got.body == NULL || curl == NULL || !set_options(curl, socket_path, url, limit_s, &got) ||
        !set_body(curl, method, body, &headers)) {
        status = mz_error_set(error, MZ_E_NOMEM, 0, "prepare the request to %s", socket_path);
        goto done;
    }
    CURLcode code = curl_easy_perform(curl);
    if (code != CURLE_OK) {
        status = mz_error_set(error, status_of_curl(code), 0, "no answer from %s: %s", socket_path,
                              curl_easy_strerror(code));
        goto done;
    }
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &got.http_status);
    *reply = got;
    got.body = NULL;
done:
    curl_easy_cleanup(curl);
    curl_slist_free_all(headers);
    free(got.body);
    return status;
}

void mz_control_reply_free(mz_control_reply *reply)
{
    free(reply->body);
    *reply = (mz_control_reply){.body = NULL};
}
