// SPDX-License-Identifier: Apache-2.0
#include "kv_events/zmq_library.h"

#include <dlfcn.h>

#include <string>
#include <type_traits>

namespace inflight::kv_events {
namespace {

struct Loaded {
  ZmqCalls calls;
  Status status;
};

bool FindAll(void* library, ZmqCalls& calls) {
  const auto find = [library](const char* name, auto& call) {
    call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(dlsym(library, name));
    return call != nullptr;
  };
  return find("zmq_ctx_new", calls.ctx_new) && find("zmq_ctx_term", calls.ctx_term) &&
         find("zmq_socket", calls.socket) && find("zmq_close", calls.close) &&
         find("zmq_setsockopt", calls.setsockopt) && find("zmq_getsockopt", calls.getsockopt) &&
         find("zmq_bind", calls.bind) && find("zmq_send", calls.send) &&
         find("zmq_recv", calls.recv) && find("zmq_poll", calls.poll) &&
         find("zmq_errno", calls.last_errno) && find("zmq_strerror", calls.strerror);
}

Loaded Load() {
  Loaded loaded;
  void* const library = dlopen("libzmq.so.5", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    loaded.status = FailedPrecondition(
        "KV events need libzmq, which cannot be loaded; install the package libzmq5: " +
        std::string(why == nullptr ? "" : why));
  } else if (!FindAll(library, loaded.calls)) {
    loaded.status = FailedPrecondition("libzmq.so.5 lacks a function of its interface");
  }
  return loaded;
}

}  // namespace

Result<const ZmqCalls*> LoadZmq() {
  static const Loaded loaded = Load();
  if (!loaded.status.ok()) return loaded.status;
  return &loaded.calls;
}

}  // namespace inflight::kv_events
