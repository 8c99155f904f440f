// SPDX-License-Identifier: Apache-2.0
// Stands in for upload_lane.cc in builds without CUDA: no device was ever probed, so nobody can
// have one to upload to.
#include "base/check.h"
#include "tensor/upload_lane.h"

namespace inflight {

struct UploadLane::Impl {};

UploadLane::UploadLane(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
UploadLane::~UploadLane() = default;
void* UploadLane::stream() const { CHECK(false); }
Result<std::unique_ptr<UploadLane>> UploadLane::Create(Device&) { CHECK(false); }
Result<std::byte*> UploadLane::NextPiece() { CHECK(false); }
Status UploadLane::Send(void*, size_t) { CHECK(false); }
Result<void*> UploadLane::Scratch() { CHECK(false); }
Status UploadLane::Wait() { CHECK(false); }
Status UploadAll(Device&, int64_t, const LaneWork&, int) { CHECK(false); }

}  // namespace inflight
