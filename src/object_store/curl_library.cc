// SPDX-License-Identifier: Apache-2.0
#include "object_store/curl_library.h"

#include <dlfcn.h>

#include <string>
#include <type_traits>

namespace inflight::object_store {
namespace {

struct Loaded {
  CurlCalls calls;
  Status status;
};

Status Find(void* library, CurlCalls& calls) {
  const auto find = [library](const char* name, auto& call) {
    call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(dlsym(library, name));
    return call != nullptr;
  };
  const bool has_all =
      find("curl_global_init", calls.global_init) && find("curl_easy_init", calls.easy_init) &&
      find("curl_easy_cleanup", calls.easy_cleanup) && find("curl_easy_reset", calls.easy_reset) &&
      find("curl_easy_setopt", calls.easy_setopt) &&
      find("curl_easy_perform", calls.easy_perform) &&
      find("curl_easy_getinfo", calls.easy_getinfo) &&
      find("curl_easy_strerror", calls.easy_strerror) &&
      find("curl_slist_append", calls.slist_append) &&
      find("curl_slist_free_all", calls.slist_free_all);
  if (!has_all) return FailedPrecondition("libcurl.so.4 lacks a function of its interface");
  if (calls.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
    return FailedPrecondition("libcurl does not start");
  return Status::Ok();
}

Loaded Load() {
  Loaded loaded;
  void* const library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    loaded.status = FailedPrecondition(
        "object stores need libcurl, which cannot be loaded; install the package libcurl4: " +
        std::string(why == nullptr ? "" : why));
  } else {
    loaded.status = Find(library, loaded.calls);
  }
  return loaded;
}

}  // namespace

Result<const CurlCalls*> LoadCurl() {
  static const Loaded loaded = Load();
  if (!loaded.status.ok()) return loaded.status;
  return &loaded.calls;
}

}  // namespace inflight::object_store
