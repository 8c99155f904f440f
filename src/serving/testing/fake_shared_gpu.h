// SPDX-License-Identifier: Apache-2.0
// For tests: memory of a GPU that clients may register, eight bytes behind the handle "h" (in
// base64 aA==).
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "serving/memory/shared_object.h"

namespace inflight::serving {

class FakeSharedGpu {
 public:
  OpenCudaObject Opener() {
    return [this](int64_t device, std::string_view handle) -> OpenedObject {
      device_ = device;
      if (!handle.starts_with("h"))
        return InvalidArgument("failed to open CUDA IPC handle: invalid argument");
      ++num_open_;
      return std::shared_ptr<const SharedObject>(std::make_shared<Memory>(*this));
    };
  }
  int num_open() const { return num_open_; }
  int64_t device() const { return device_; }  // asked for last
  std::string bytes = "01234567";
  bool is_broken = false;

 private:
  class Memory final : public SharedObject {
   public:
    explicit Memory(FakeSharedGpu& gpu) : gpu_(gpu) {}
    ~Memory() override { --gpu_.num_open_; }
    uint64_t byte_size() const override { return gpu_.bytes.size(); }
    Status Read(uint64_t offset, std::span<std::byte> bytes) const override {
      if (gpu_.is_broken) return Internal("cannot be copied: device lost");
      std::memcpy(bytes.data(), gpu_.bytes.substr(offset).c_str(), bytes.size());
      return Status::Ok();
    }
    Status Write(uint64_t offset, std::span<const std::byte> bytes) const override {
      gpu_.bytes.replace(offset, bytes.size(), reinterpret_cast<const char*>(bytes.data()),
                         bytes.size());
      return Status::Ok();
    }

   private:
    FakeSharedGpu& gpu_;
  };

  int num_open_ = 0;
  int64_t device_ = -1;
};

}  // namespace inflight::serving
