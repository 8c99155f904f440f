// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL 2 that collectives need, as its documentation declares them ("NCCL API").
// The library is loaded when a model is to use it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "inflight/status.h"

namespace inflight::executor::cuda {

struct NcclComm;  // opaque

// Made by one rank and handed to the others, by which they find each other.
struct NcclId {
  char bytes[128];
};

enum class NcclType : int { kInt8 = 0, kFloat16 = 6, kFloat32 = 7, kBFloat16 = 9 };
inline constexpr int kNcclSum = 0;

// An int that is returned is 0, or a code for error_text.
struct NcclCalls {
  int (*get_unique_id)(NcclId* id) = nullptr;
  int (*comm_init_rank)(NcclComm** comm, int size, NcclId id, int rank) = nullptr;
  int (*comm_destroy)(NcclComm* comm) = nullptr;
  int (*comm_abort)(NcclComm* comm) = nullptr;
  int (*all_reduce)(const void* from, void* to, size_t count, NcclType type, int operation,
                    NcclComm* comm, cudaStream_t stream) = nullptr;
  int (*send)(const void* from, size_t count, NcclType type, int to, NcclComm* comm,
              cudaStream_t stream) = nullptr;
  int (*receive)(void* to, size_t count, NcclType type, int from, NcclComm* comm,
                 cudaStream_t stream) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  const char* (*error_text)(int code) = nullptr;

  Status ToStatus(int code, const char* what) const;
};

// kFailedPrecondition says what to install where libnccl.so.2 cannot be loaded.
Result<const NcclCalls*> LoadNccl();

}  // namespace inflight::executor::cuda
