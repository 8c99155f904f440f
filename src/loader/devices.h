// SPDX-License-Identifier: Apache-2.0
// Which device a model is opened on: the one that an option names or, for "auto", one that suits
// the model. The class that include/inflight/open.h declares.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "builder/builder.h"

namespace inflight {

// The devices of this process that models may be opened on, each made when it is first needed.
// Threads: For is thread-safe.
class Devices {
 public:
  // `name` and errors as of Device::ByName; "auto" has none. `num_threads` of the host pools: 0 =
  // the usable cores.
  static Result<std::shared_ptr<Devices>> ByName(const std::string& name, int num_threads = 0);

  // That one device for every model.
  static std::shared_ptr<Devices> Only(std::shared_ptr<Device> device);

  // What opens `dir` with `options`. "auto" is the kind of device that an engine was built for; for
  // other directories the first GPU where there is one that has kernels for the model, else the
  // CPU. Logs what a user of "auto" may not expect.
  Result<std::shared_ptr<Device>> For(const std::filesystem::path& dir,
                                      builder::OpenOptions options = {});
  // The GPU of that index under "auto"; where an option names a device, that one. An engine that
  // was built for the CPU is kInvalidArgument, a GPU that is not there kUnavailable or
  // kInvalidArgument.
  Result<std::shared_ptr<Device>> ForGpu(const std::filesystem::path& dir, int index);
  // The GPU of the index behind that of `gpu`, which is one of these.
  Result<std::shared_ptr<Device>> Behind(const Device& gpu, int distance);

 private:
  Devices() = default;
  const std::shared_ptr<Device>& Cpu();
  Result<std::shared_ptr<Device>> ForEngine(const std::filesystem::path& dir, int rank);
  Result<std::shared_ptr<Device>> OtherGpu(int index);  // under mutex_

  std::mutex mutex_;
  int num_threads_ = 0;
  std::shared_ptr<Device> only_;  // null for "auto"
  std::shared_ptr<Device> cpu_;
  std::shared_ptr<Device> gpu_;                        // the first
  std::map<int, std::shared_ptr<Device>> other_gpus_;  // by index
  Status no_gpu_;                                      // why there is none
};

}  // namespace inflight
