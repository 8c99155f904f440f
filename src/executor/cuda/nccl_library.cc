// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>
#include <type_traits>

namespace inflight::executor::cuda {
namespace {

struct Loaded {
  NcclCalls calls;
  Status status;
};

bool FindAll(void* library, NcclCalls& calls) {
  const auto find = [library](const char* name, auto& call) {
    call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(dlsym(library, name));
    return call != nullptr;
  };
  return find("ncclGetUniqueId", calls.get_unique_id) &&
         find("ncclCommInitRank", calls.comm_init_rank) &&
         find("ncclCommDestroy", calls.comm_destroy) && find("ncclCommAbort", calls.comm_abort) &&
         find("ncclAllReduce", calls.all_reduce) && find("ncclSend", calls.send) &&
         find("ncclRecv", calls.receive) && find("ncclGroupStart", calls.group_start) &&
         find("ncclGroupEnd", calls.group_end) && find("ncclGetErrorString", calls.error_text);
}

Loaded Load() {
  Loaded loaded;
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    loaded.status = FailedPrecondition(fmt::format(
        "tensor_parallel_size, pipeline_parallel_size: ranks on GPUs that are processes, or do not "
        "reach each other's memory, need NCCL, which cannot be loaded; install libnccl2, or name "
        "its directory in LD_LIBRARY_PATH: {}",
        why == nullptr ? "" : why));
  } else if (!FindAll(library, loaded.calls)) {
    loaded.status = FailedPrecondition(
        "tensor_parallel_size, pipeline_parallel_size: libnccl.so.2 lacks a function of NCCL 2.7; "
        "install a newer libnccl2");
  }
  return loaded;
}

}  // namespace

Status NcclCalls::ToStatus(int code, const char* what) const {
  if (code == 0) return Status::Ok();
  return Internal(
      fmt::format("NCCL, {}: {} ({}); NCCL_DEBUG=INFO says more", what, error_text(code), code));
}

Result<const NcclCalls*> LoadNccl() {
  static const Loaded loaded = Load();
  if (!loaded.status.ok()) return loaded.status;
  return &loaded.calls;
}

}  // namespace inflight::executor::cuda
