// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU that two processes share: the one that owns it is this program, started again for
// one test alone, since a process cannot open its own handle.
#include "tensor/cuda_ipc.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "gpu_test.h"

namespace inflight::cuda {
namespace {

using Handle = std::array<std::byte, kIpcHandleBytes>;

constexpr size_t kBytes = 4096;  // less than the driver hands out at once
constexpr char kSocket[] = "INFLIGHT_TEST_IPC_SOCKET";

std::vector<std::byte> Pattern(int seed) {
  std::vector<std::byte> bytes(kBytes);
  for (size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256 + seed);
  return bytes;
}

std::vector<std::byte> BytesAt(const std::byte* data) {
  std::vector<std::byte> bytes(kBytes);
  gpu::Must(Copy(0, bytes.data(), data, kBytes));
  return bytes;
}

// The owner: lends the second of two allocations, then expects in it what the other process wrote.
TEST(CudaIpcOwner, DISABLED_LendsMemory) {
  ASSERT_NE(std::getenv(kSocket), nullptr);
  const int socket = std::atoi(std::getenv(kSocket));
  auto* const own = static_cast<std::byte*>(gpu::Must(Allocate(0, kBytes)));
  auto* const lent = static_cast<std::byte*>(gpu::Must(Allocate(0, kBytes)));
  gpu::Must(Copy(0, own, Pattern(1).data(), kBytes));
  gpu::Must(Copy(0, lent, Pattern(2).data(), kBytes));
  cudaIpcMemHandle_t handle;
  ASSERT_EQ(cudaIpcGetMemHandle(&handle, lent), cudaSuccess);
  ASSERT_EQ(write(socket, &handle, sizeof handle), static_cast<ssize_t>(sizeof handle));
  char is_written = 0;
  ASSERT_EQ(read(socket, &is_written, 1), 1);
  EXPECT_EQ(BytesAt(lent), Pattern(3));
  EXPECT_EQ(BytesAt(own), Pattern(1));
}

class CudaIpcTest : public gpu::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    socket_ = ends[0];
    ASSERT_EQ(setenv(kSocket, std::to_string(ends[1]).c_str(), 1), 0);
    std::string program = "/proc/self/exe";
    std::string filter = "--gtest_filter=CudaIpcOwner.*";
    std::string disabled = "--gtest_also_run_disabled_tests";
    char* const arguments[] = {program.data(), filter.data(), disabled.data(), nullptr};
    unsetenv("GTEST_TOTAL_SHARDS");  // the owner is whole, whichever shard asks for it
    ASSERT_EQ(posix_spawn(&owner_, program.c_str(), nullptr, nullptr, arguments, environ), 0);
    close(ends[1]);
    ASSERT_EQ(recv(socket_, handle_.data(), handle_.size(), MSG_WAITALL),
              static_cast<ssize_t>(handle_.size()));
  }
  void TearDown() override {
    if (socket_ >= 0) close(socket_);
    if (owner_ > 0) waitpid(owner_, nullptr, 0);
  }

  // How the owner's test ended, once it may look at what was written.
  int EndOwner() {
    EXPECT_EQ(write(socket_, "w", 1), 1);
    int status = -1;
    EXPECT_EQ(waitpid(owner_, &status, 0), owner_);
    owner_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  Handle handle_{};

 private:
  int socket_ = -1;
  pid_t owner_ = -1;
};

TEST_F(CudaIpcTest, WhatOneProcessWritesTheOtherReads) {
  const auto memory = OpenIpc(0, handle_);
  ASSERT_TRUE(memory.ok()) << memory.status().ToString();
  EXPECT_GE(memory->byte_size, kBytes);
  EXPECT_EQ(BytesAt(memory->data), Pattern(2));
  EXPECT_TRUE(Copy(0, memory->data, Pattern(3).data(), kBytes).ok());
  EXPECT_EQ(EndOwner(), 0);
  CloseIpc(*memory);
}

TEST_F(CudaIpcTest, AHandleMayBeOpenedTwiceAndIsOpenUntilBothAreClosed) {
  const auto first = OpenIpc(0, handle_);
  const auto second = OpenIpc(0, handle_);
  ASSERT_TRUE(first.ok() && second.ok()) << second.status().ToString();
  CloseIpc(*first);
  EXPECT_EQ(BytesAt(second->data), Pattern(2));
  EXPECT_TRUE(Copy(0, second->data, Pattern(3).data(), kBytes).ok());
  CloseIpc(*second);
  EXPECT_EQ(EndOwner(), 0);
}

TEST_F(CudaIpcTest, WhatCannotBeOpenedIsRefusedAndHarmsNothing) {
  EXPECT_EQ(OpenIpc(1000, handle_).status().message(),
            "failed to use the GPU: invalid device ordinal");
  const auto none = OpenIpc(0, Handle{});
  EXPECT_EQ(none.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(none.status().message(), testing::StartsWith("failed to open CUDA IPC handle: "));
  const auto memory = OpenIpc(0, handle_);
  ASSERT_TRUE(memory.ok()) << memory.status().ToString();
  EXPECT_TRUE(Copy(0, memory->data, Pattern(3).data(), kBytes).ok());
  CloseIpc(*memory);
  EXPECT_EQ(EndOwner(), 0);
}

}  // namespace
}  // namespace inflight::cuda
