// SPDX-License-Identifier: Apache-2.0
// libcurl, loaded when the first address of an object store is read: a program that reads none does
// not have it, nor the two dozen libraries that it brings.
#pragma once

#include <curl/curl.h>

#include "inflight/status.h"

namespace inflight::object_store {

struct CurlCalls {
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_easy_init) easy_init = nullptr;
  decltype(&curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&curl_easy_reset) easy_reset = nullptr;
  decltype(&curl_easy_setopt) easy_setopt = nullptr;
  decltype(&curl_easy_perform) easy_perform = nullptr;
  decltype(&curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&curl_easy_strerror) easy_strerror = nullptr;
  decltype(&curl_slist_append) slist_append = nullptr;
  decltype(&curl_slist_free_all) slist_free_all = nullptr;
};

// Of the whole process, for good. kFailedPrecondition names the package that has it.
Result<const CurlCalls*> LoadCurl();

}  // namespace inflight::object_store
