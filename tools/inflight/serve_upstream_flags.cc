// SPDX-License-Identifier: Apache-2.0
#include "serve_upstream_flags.h"

#include <string>
#include <utility>
#include <vector>

namespace inflight::tool {
namespace {

using config::AtLeast;
using config::Constraint;
using config::Range;
using Schema = config::Schema<ServeOptions>;

constexpr char kNoPool[] = "a model takes of a GPU what its memory plan says, there is no pool";

using Texts = std::vector<std::string>;

template <typename T>
void Note(Schema& schema, const char* name, const std::string& reason, Constraint constraint = {}) {
  schema.Note<T>(name, reason, std::move(constraint), &ServeOptions::without_effect);
}

}  // namespace

void AddUpstreamServeFlags(Schema& schema) {
  schema.Section("Flags of tritonserver without effect here, or refused");
  Note<double>(schema, "grpc_infer_thread_count", "the threads of the port are sized by the cores",
               Range(2, 128));
  Note<double>(schema, "grpc_infer_allocation_pool_size", "states of requests are not recycled",
               AtLeast(1));
  Note<double>(schema, "buffer_manager_thread_count", "no threads copy tensors", AtLeast(0));
  Note<bool>(schema, "enable_peer_access",
             "an executor runs on one GPU and reads no other's memory");
  Note<double>(schema, "pinned_memory_pool_byte_size",
               "pinned memory is taken as the memory plan says, there is no pool", AtLeast(0));
  Note<Texts>(schema, "cuda_memory_pool_byte_size", kNoPool);
  Note<Texts>(schema, "cuda_virtual_address_size", kNoPool);
  Note<double>(schema, "min_supported_compute_capability",
               "GPUs before 8.0 are never used; CUDA_VISIBLE_DEVICES hides others", Range(0, 8));
  Note<Texts>(schema, "backend_directory", "the backends are part of this program");
  Note<Texts>(schema, "repoagent_directory", "there are no repository agents");
  Note<Texts>(schema, "cache_directory", "the cache is part of this program");
  schema.Refuse("host_policy",
                "instances are not bound to cores; start the server with numactl or taskset");
  schema.Refuse("model_load_gpu_limit",
                "what models may take of a GPU is said with --kv-cache-free-memory-fraction");
}

}  // namespace inflight::tool
