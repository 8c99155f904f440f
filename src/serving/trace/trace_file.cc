// SPDX-License-Identifier: Apache-2.0
#include "serving/trace/trace_file.h"

#include <utility>

#include "base/create_file.h"
#include "base/log.h"

namespace inflight::serving {

TraceFile::TraceFile(std::string path)
    : path_(std::move(path)), writer_(std::make_unique<WorkerPool>(1, "trace")) {}

TraceFile::~TraceFile() {
  writer_.reset();  // writes what was posted
  if (file_.ok()) Note(WriteAll(file_, path_, "]"));
}

void TraceFile::Append(std::string elements) {
  writer_->Post([this, elements = std::move(elements)] {
    const char* const before = file_.ok() ? "," : "[";
    if (!file_.ok()) {
      auto opened = CreateFile(path_, Existing::kTruncate);
      if (!opened.ok()) return Note(opened.status());
      file_ = *std::move(opened);
    }
    Note(WriteAll(file_, path_, before + elements));
  });
}

void TraceFile::WriteNumbered(std::string elements) {
  writer_->Post([this, elements = std::move(elements)] {
    const std::string path = path_ + "." + std::to_string(num_files_++);
    const auto file = CreateFile(path, Existing::kTruncate);
    Note(file.ok() ? WriteAll(*file, path, "[" + elements + "]") : file.status());
  });
}

void TraceFile::Note(const Status& written) {
  if (!written.ok()) {
    logging::Error("trace file cannot be written", {{"reason", written.message()}});
  }
}

}  // namespace inflight::serving
