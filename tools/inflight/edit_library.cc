// SPDX-License-Identifier: Apache-2.0
#include "edit_library.h"

#include <dlfcn.h>

#include <optional>
#include <type_traits>

namespace inflight::tool {
namespace {

std::optional<EditCalls> FindEdit() {
  void* const library = dlopen("libedit.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  const auto find = [library](const char* name, auto& call) {
    call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(dlsym(library, name));
    return call != nullptr;
  };
  EditCalls calls;
  const bool has_all = find("el_init", calls.init) && find("el_end", calls.end) &&
                       find("el_gets", calls.gets) && find("el_set", calls.set) &&
                       find("el_get", calls.get) && find("history_init", calls.history_init) &&
                       find("history_end", calls.history_end) && find("history", calls.history);
  return has_all ? std::optional(calls) : std::nullopt;
}

}  // namespace

const EditCalls* LoadEdit() {
  static const std::optional<EditCalls> calls = FindEdit();
  return calls ? &*calls : nullptr;
}

}  // namespace inflight::tool
