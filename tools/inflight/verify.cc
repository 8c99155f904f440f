// SPDX-License-Identifier: Apache-2.0
// inflight verify: computes the answer of a receipt again, alone, and compares.
#include "receipts/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/status_macros.h"
#include "builder/peft_adapter.h"
#include "command_line.h"
#include "commands.h"
#include "inflight/tokenizer.h"
#include "json/json_reader.h"
#include "loader/loader.h"
#include "model_directory.h"
#include "receipts/hashes.h"
#include "receipts/request_members.h"

namespace inflight::tool {
namespace {

using receipts::Receipt;

const Usage kUsage = {
    "inflight verify RECEIPT --model DIR",
    "Computes the answers of receipts again, each alone, and compares weights, kernels, parameters "
    "and every token.\nRECEIPT is a file (- is standard input): a receipt, a list of them, or an "
    "answer of `inflight serve --receipts` that carries one."};

struct Options {
  std::string model;
  std::string prompt;
  std::string prompt_ids;
  std::string adapter;
  std::string device;
  std::optional<int> num_threads;
  bool any_kernels = false;
};

config::Schema<Options> MakeSchema() {
  config::Schema<Options> schema;
  schema.Section("Verify");
  schema.Add(
      "model", [](Options& o) -> auto& { return o.model; },
      "The model: a directory, an id in the Hugging Face cache, or an address of an object store.");
  schema.Add(
      "prompt", [](Options& o) -> auto& { return o.prompt; },
      "The prompt's text, of a receipt that has its hash alone: tokenized as /v1/completions "
      "does.");
  schema.Add(
      "prompt_ids", [](Options& o) -> auto& { return o.prompt_ids; },
      "File of the prompt's tokens, a list in JSON, in place of --prompt; of several prompts a "
      "list of their lists.");
  schema.Add(
      "adapter", [](Options& o) -> auto& { return o.adapter; },
      "The folder of the adapter (LoRA) that the receipts are of.");
  schema.Add(
      "device", [](Options& o) -> auto& { return o.device; },
      "Where it runs, in place of the receipt's kind of device: cpu, cuda or cuda:N.");
  schema.Add(
      "threads", [](Options& o) -> auto& { return o.num_threads; },
      "CPU threads; default: the usable cores.", config::Range(1, 1024));
  schema.Add(
      "any_kernels", [](Options& o) -> auto& { return o.any_kernels; },
      "Compute with the kernels that are here, which may round differently, where the receipt's "
      "are not.",
      config::Switch());
  return schema;
}

Result<std::vector<Receipt>> ReadReceipts(const std::string& file) {
  std::string text;
  if (file == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    ASSIGN_OR_RETURN(text, ReadFile(file));
  }
  const auto found = receipts::FindReceipts(text);
  if (!found.ok()) return found.status().WithPrefix(file);
  std::vector<Receipt> read;
  for (const std::string& one : *found) {
    auto receipt = receipts::ParseReceipt(one);
    if (!receipt.ok()) return receipt.status().WithPrefix(file);
    read.push_back(*std::move(receipt));
  }
  return read;
}

// One at least.
Result<std::vector<std::vector<TokenId>>> GivenPrompts(const Options& options,
                                                       const std::filesystem::path& model) {
  using inflight::json::Value;
  std::vector<std::vector<TokenId>> prompts;
  if (options.prompt_ids.empty()) {
    ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(model));
    ASSIGN_OR_RETURN(prompts.emplace_back(),
                     tokenizer->Encode(options.prompt, /*add_special_tokens=*/true));
    return prompts;
  }
  ASSIGN_OR_RETURN(const std::string text, ReadFile(options.prompt_ids));
  const auto list = Value::Parse(text);
  if (!list.ok()) return list.status().WithPrefix(options.prompt_ids);
  bool has_lists = false;
  if (list->kind() == Value::Kind::kArray)
    RETURN_IF_ERROR(list->ForEachElement([&has_lists](const Value& element) {
      has_lists |= element.kind() == Value::Kind::kArray;
      return Status::Ok();
    }));
  const auto add = [&](const Value& ids) {
    return receipts::ReadIdList(ids, options.prompt_ids, prompts.emplace_back());
  };
  RETURN_IF_ERROR(has_lists ? list->ForEachElement(add) : add(*list));
  return prompts;
}

// The ids of a prompt, of receipts that lack them.
Status AddPrompts(const Options& options, const std::filesystem::path& model,
                  std::vector<Receipt>& receipts) {
  const bool is_given = !options.prompt.empty() || !options.prompt_ids.empty();
  const bool are_whole = std::ranges::all_of(receipts, &Receipt::has_ids);
  if (!options.prompt.empty() && !options.prompt_ids.empty())
    return UsageError(kUsage, "--prompt and --prompt-ids are both the prompt; give one");
  if (is_given && are_whole)
    return UsageError(kUsage, "the receipt has its prompt; leave --prompt and --prompt-ids out");
  if (!is_given && !are_whole)
    return FailedPrecondition(
        "prompt: the receipt has a hash in place of its tokens: give them by --prompt-ids, or the "
        "text by --prompt");
  if (are_whole) return Status::Ok();
  ASSIGN_OR_RETURN(const auto prompts, GivenPrompts(options, model));
  for (Receipt& receipt : receipts) {
    if (receipt.has_ids) continue;
    const auto of_hash = std::ranges::find(
        prompts, receipt.prompt, [](const auto& ids) { return receipts::HashOfIds(ids); });
    receipt.request.input_ids = of_hash == prompts.end() ? prompts.front() : *of_hash;
  }
  return Status::Ok();
}

Result<loader::Loaded> LoadLike(const Options& options, const std::filesystem::path& model,
                                std::span<const Receipt> receipts, OpenOptions* open) {
  int64_t kv_tokens = 0;
  for (const Receipt& receipt : receipts)
    kv_tokens = std::max(kv_tokens, receipts::KvTokensOf(receipt));
  const receipts::EngineRecord& engine = receipts.front().engine;
  *open = receipts::OptionsLike(engine, kv_tokens);
  open->num_threads = options.num_threads.value_or(0);
  if (!options.device.empty()) open->device = options.device;
  if (options.any_kernels || open->device != "cpu") open->ops.clear();
  auto loaded = loader::Load(model, *open);
  const bool lacks_kernels = !loaded.ok() && !open->ops.empty() && loaded.status().field() == "ops";
  if (!lacks_kernels) return loaded;
  return FailedPrecondition(
      fmt::format("kernels: the receipt is of {}: {}; run it where those are, or try --any-kernels",
                  engine.kernels.ToString(), loaded.status().message()));
}

Status CheckAlike(std::span<const Receipt> receipts) {
  const auto is_alike = [&](const Receipt& receipt) {
    const receipts::EngineRecord& first = receipts.front().engine;
    return receipt.engine.kernels == first.kernels &&
           receipts::AreOpenedAlike(receipt.engine, first);
  };
  if (std::ranges::all_of(receipts, is_alike)) return Status::Ok();
  return InvalidArgument(
      "the receipts are of several models, of several kernels, or of one model that was opened by "
      "other options: verify those of each by themselves");
}

Status VerifyAll(const Options& options, const std::string& file) {
  ASSIGN_OR_RETURN(std::vector<Receipt> receipts, ReadReceipts(file));
  RETURN_IF_ERROR(CheckAlike(receipts));
  if (options.model.empty()) return UsageError(kUsage, "--model is needed");
  ASSIGN_OR_RETURN(const std::filesystem::path model, ModelDirectory(options.model));
  RETURN_IF_ERROR(AddPrompts(options, model, receipts));
  receipts::Again again{.any_kernels = options.any_kernels};
  if (!options.adapter.empty()) {
    ASSIGN_OR_RETURN(LoraTensors tensors, builder::ReadPeftAdapter(options.adapter));
    again.adapter = std::make_shared<const LoraTensors>(std::move(tensors));
  }
  OpenOptions open;
  ASSIGN_OR_RETURN(const loader::Loaded loaded, LoadLike(options, model, receipts, &open));
  again.executor = loaded.executor.get();
  ASSIGN_OR_RETURN(again.engine, receipts::RecordEngine(loaded.info, open, loaded.kernels.table,
                                                        loaded.kernels.device));
  size_t num_differ = 0;
  for (size_t i = 0; i < receipts.size(); ++i) {
    const std::string name = receipts.size() == 1 ? "" : fmt::format("receipt {}: ", i);
    ASSIGN_OR_RETURN(const auto differences, receipts::Verify(receipts[i], again));
    for (const std::string& difference : differences) fmt::print("{}{}\n", name, difference);
    if (differences.empty()) fmt::print("{}verified\n", name);
    num_differ += differences.empty() ? 0 : 1;
  }
  if (num_differ == 0) return Status::Ok();
  return DataLoss(receipts.size() == 1 ? "the receipt is not verified"
                                       : fmt::format("{} of {} receipts are not verified",
                                                     num_differ, receipts.size()));
}

Status Run(const Options& options, std::span<const std::string> positionals) {
  ASSIGN_OR_RETURN(const std::string file, OnlyPositional(kUsage, positionals, "receipt"));
  return VerifyAll(options, file);
}

}  // namespace

int VerifyMain(Args args) { return RunCommand(args, kUsage, MakeSchema(), Run); }

Manual VerifyManual() {
  return {.usage = kUsage,
          .options = MakeSchema().options(),
          .exit_status =
              "0 where all receipts are verified. 1 where one is not, which lines on "
              "standard output describe, or after an error, which one line on standard "
              "error describes."};
}

}  // namespace inflight::tool
