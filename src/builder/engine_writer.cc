// SPDX-License-Identifier: Apache-2.0
#include "builder/engine_writer.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "artifact/checkpoint.h"
#include "artifact/engine_file.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "builder/engine_memory.h"
#include "builder/pack.h"
#include "builder/slot_runs.h"
#include "builder/upload.h"
#include "model/weight_slots.h"

namespace inflight::builder {
namespace {

using model::WeightSlot;

constexpr uint64_t kRunBytes = uint64_t{1} << 30;  // on the GPU at a time, or one matrix

bool QuantisesRows(const WeightSource& source, std::span<const WeightSlot> slots) {
  return std::ranges::any_of(slots, [&](const WeightSlot& slot) {
    return slot.is_quantized && !IsQuantized(source.recipes.at(slot.name));
  });
}

class Writer {
 public:
  Writer(const model::ModelConfig& config, DeviceKind target, const Progress& progress)
      : target_(target), progress_(progress) {
    model::DecoderWeights unused;
    slots_ = model::WeightSlots(config, unused);
    for (const WeightSlot& slot : slots_) {
      tensors_.push_back(
          {.name = slot.name,
           .dtype = StoredDType(config, slot),
           .shape = slot.shape,
           .layout = std::string(ops::WeightLayoutName(StoredLayout(config, slot, target))),
           .num_bytes = StoredBytes(config, slot, target)});
      total_bytes_ += tensors_.back().num_bytes;
    }
  }

  Status Write(const std::filesystem::path& path, Device& host, const MakeSlot& make) {
    ASSIGN_OR_RETURN(auto file, Create(path));
    RETURN_IF_ERROR(WriteFromHost(host, make, file));
    return file.Finish();
  }

  Status Write(const WeightSource& source, const std::filesystem::path& path, Device& host,
               Device* gpu) {
    ASSIGN_OR_RETURN(auto file, Create(path));
    std::vector<uint64_t> num_bytes;
    for (const artifact::EngineTensor& tensor : tensors_)
      num_bytes.push_back(artifact::EngineAlignUp(tensor.num_bytes));
    const std::vector<SlotRun> runs = RunsOf(slots_, num_bytes, kRunBytes);
    Buffer on_gpu;
    if (gpu != nullptr && QuantisesRows(source, slots_)) {
      const uint64_t largest = std::ranges::max(runs, {}, &SlotRun::num_bytes).num_bytes;
      Result<Buffer> room = Buffer::Allocate(*gpu, "weights of a build", largest);
      if (room.ok())
        on_gpu = *std::move(room);
      else
        logging::Warning("weights are quantised on the host",
                         {{"reason", room.status().message()}});
    }
    const int64_t begin_ns = Clock::System().NowNs();
    if (on_gpu.data() == nullptr) {
      const auto pack = [&](const PlacedSlot& placed) {
        PackSlot(source, placed.slot, target_, host.cpu_pool(), placed.target);
        return Status::Ok();
      };
      RETURN_IF_ERROR(WriteFromHost(host, pack, file));
    } else {
      for (const SlotRun& run : runs)
        RETURN_IF_ERROR(WriteFromGpu(source, run, *gpu, on_gpu, file));
      logging::Info("weights quantised",
                    {{"device", gpu->name()},
                     {"seconds", static_cast<double>(Clock::System().NowNs() - begin_ns) * 1e-9}});
    }
    return file.Finish();
  }

 private:
  Result<artifact::EngineFileWriter> Create(const std::filesystem::path& path) const {
    return artifact::EngineFileWriter::Create(path, std::string(TargetName(target_)), tensors_);
  }

  Status WriteFromHost(Device& host, const MakeSlot& make, artifact::EngineFileWriter& file) {
    const uint64_t largest =
        std::ranges::max(tensors_, {}, &artifact::EngineTensor::num_bytes).num_bytes;
    ASSIGN_OR_RETURN(const Buffer packed, Buffer::Allocate(host, "packed tensor", largest));
    for (size_t i = 0; i < slots_.size(); ++i) {
      Report(i);
      RETURN_IF_ERROR(make({slots_[i], packed.data(), tensors_[i].num_bytes}));
      RETURN_IF_ERROR(file.Write(i, {packed.data(), tensors_[i].num_bytes}));
      done_bytes_ += tensors_[i].num_bytes;
    }
    return Status::Ok();
  }

  Status WriteFromGpu(const WeightSource& source, const SlotRun& run, Device& gpu,
                      const Buffer& on_gpu, artifact::EngineFileWriter& file) {
    Report(run.begin);
    std::vector<PlacedSlot> placed;
    uint64_t offset = 0;
    for (size_t i = run.begin; i < run.end; ++i) {
      placed.push_back({slots_[i], on_gpu.data() + offset, tensors_[i].num_bytes});
      offset += artifact::EngineAlignUp(tensors_[i].num_bytes);
    }
    RETURN_IF_ERROR(UploadSlots(source, placed, gpu, {}));
    std::vector<std::byte> bytes;
    for (size_t i = run.begin; i < run.end; ++i) {
      bytes.resize(tensors_[i].num_bytes);
      RETURN_IF_ERROR(gpu.Copy(bytes.data(), placed[i - run.begin].target, bytes.size()));
      RETURN_IF_ERROR(file.Write(i, bytes));
      done_bytes_ += tensors_[i].num_bytes;
    }
    return Status::Ok();
  }

  void Report(size_t slot) const {
    if (progress_)
      progress_(static_cast<double>(done_bytes_) / static_cast<double>(total_bytes_),
                slots_[slot].name);
  }

  const DeviceKind target_;
  const Progress& progress_;
  std::vector<WeightSlot> slots_;
  std::vector<artifact::EngineTensor> tensors_;
  uint64_t total_bytes_ = 0;
  uint64_t done_bytes_ = 0;
};

}  // namespace

Status WriteEngineFile(const WeightSource& source, const std::filesystem::path& path,
                       DeviceKind target, Device& host, Device* gpu, const Progress& progress) {
  return Writer(source.config, target, progress)
      .Write(source, path, host, target == DeviceKind::kCuda ? gpu : nullptr);
}

Status WriteEngineFile(const model::ModelConfig& config, const std::filesystem::path& path,
                       DeviceKind target, Device& host, const MakeSlot& make) {
  return Writer(config, target, {}).Write(path, host, make);
}

}  // namespace inflight::builder
