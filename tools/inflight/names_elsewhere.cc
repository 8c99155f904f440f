// SPDX-License-Identifier: Apache-2.0
#include "names_elsewhere.h"

#include <algorithm>
#include <cstdlib>
#include <span>

#include "base/log.h"

namespace inflight::tool {
namespace {

constexpr char kVllm[] = "vLLM";
constexpr char kLlama[] = "llama-server";
constexpr char kOllama[] = "Ollama";

// `here` completes "here ...". A test asks for each name and holds that the options that are named
// exist.
struct Name {
  std::string_view name;
  const char* of;
  const char* here;
};

constexpr char kMemory[] =
    "that is --kv-cache-free-memory-fraction, of the memory that the weights leave";
constexpr char kRows[] = "that is --max-batch-size";
constexpr char kStepTokens[] = "that is --max-num-tokens";
constexpr char kPrefix[] = "that is --enable-prefix-reuse, true by default";
constexpr char kBlock[] = "that is --kv-block-size";
constexpr char kLayers[] =
    "all layers are on the GPU that --device names; --gpu-weights-percent keeps a part of them";
constexpr char kTools[] =
    "calls of tools need no option; --tool-call-format says how the model writes them where its "
    "template does not";
constexpr char kReasoning[] = "that is --reasoning-format";
constexpr char kTemplate[] = "that is --chat-template, which takes a file";
constexpr char kOwnTemplate[] = "the model's own template is used; --chat-template names a file";
constexpr char kDraft[] = "that is --draft-model";
constexpr char kDrafts[] = "that is --max-draft-len";
constexpr char kSpeculation[] = "that is --speculation, with --draft-model and --max-draft-len";
constexpr char kQuantization[] = "that is --quant-algo; a model that is stored so needs no option";
constexpr char kKvType[] = "that is --kv-cache-dtype, fp8 or auto";
constexpr char kServedName[] = "that is --served-model-name";
constexpr char kDir[] =
    "the model is the argument: a directory, a GGUF file, or ORG/NAME, which `inflight pull` "
    "downloads";
constexpr char kRevision[] = "that is a part of the model's name: ORG/NAME@REVISION";
constexpr char kHubCache[] = "HF_HUB_CACHE and HF_HOME of the environment say where models are";
constexpr char kTokenizer[] = "the tokenizer is that of the model's directory";
constexpr char kCode[] = "code of models is never run; docs/models.md lists what is supported";
constexpr char kReadOnce[] = "weights are read once into memory; there is nothing to choose";
constexpr char kStep[] = "the best kernels are chosen by the machine; leave it out";
constexpr char kAlways[] = "that is always so; leave it out";
constexpr char kRequest[] = "that is a field of each request; leave it out";
constexpr char kRope[] = "the model's config.json says it; leave it out";
constexpr char kRequestLog[] = "that is --request-log=false";
constexpr char kLogVerbose[] = "that is --log-verbose 1";
constexpr char kCert[] = "that is --http-server-cert, with --http-use-ssl";
constexpr char kKey[] = "that is --http-server-key, with --http-use-ssl";
constexpr char kRoots[] = "that is --http-root-cert, with --http-use-ssl-mutual";
constexpr char kIo[] = "that is --http-thread-count";
constexpr char kAdapters[] = "adapters need no option; --lora-modules and --lora-dir name them";
constexpr char kGpu[] = "that is --device cuda:N";
constexpr char kSplit[] = "that is --tensor-parallel-size, over GPUs as --device names the first";
constexpr char kOrigins[] = "that is --cors-origin";
constexpr char kText[] = "only text is supported; leave it out";
constexpr char kEmbeddings[] = "only generation is supported";
constexpr char kReplicas[] =
    "that is a server for each replica behind a balancer (docs/replicas.md)";
constexpr char kMetrics[] = "metrics have a port, --metrics-port; --http-metrics adds them to HTTP";
constexpr char kPage[] = "that is --allow-page, true by default";
constexpr char kMetricsOff[] = "that is --allow-metrics=false";
constexpr char kScheduler[] = "that is --scheduler-policy";
constexpr char kLength[] = "that is --max-seq-len, also called --max-model-len and --ctx-size";

constexpr Name kOptions[] = {
    {"--gpu-memory-utilization", kVllm, kMemory},
    {"--kv-cache-memory-bytes", kVllm, "that is --max-kv-tokens, in tokens"},
    {"--max-num-seqs", kVllm, kRows},
    {"--max-num-batched-tokens", kVllm, kStepTokens},
    {"--enable-prefix-caching", kVllm, kPrefix},
    {"--no-enable-prefix-caching", kVllm, "that is --enable-prefix-reuse=false"},
    {"--block-size", kVllm, kBlock},
    {"--cpu-offload-gb", kVllm, "that is --gpu-weights-percent, a part of the layers"},
    {"--swap-space", kVllm, "requests that are paused compute again; leave it out"},
    {"--tool-call-parser", kVllm, "that is --tool-call-format"},
    {"--enable-auto-tool-choice", kVllm, kTools},
    {"--reasoning-parser", kVllm, kReasoning},
    {"--enable-reasoning", kVllm, kReasoning},
    {"--speculative-config", kVllm, kSpeculation},
    {"--speculative-model", kVllm, kDraft},
    {"--num-speculative-tokens", kVllm, kDrafts},
    {"--quantization", kVllm, kQuantization},
    {"-q", kVllm, kQuantization},
    {"--tokenizer", kVllm, kTokenizer},
    {"--tokenizer-mode", kVllm, kTokenizer},
    {"--trust-remote-code", kVllm, kCode},
    {"--load-format", kVllm, kReadOnce},
    {"--revision", kVllm, kRevision},
    {"--download-dir", kVllm, kHubCache},
    {"--enforce-eager", kVllm, kStep},
    {"--disable-custom-all-reduce", kVllm, kStep},
    {"--distributed-executor-backend", kVllm, kSplit},
    {"--data-parallel-size", kVllm, kReplicas},
    {"-dp", kVllm, kReplicas},
    {"--enable-lora", kVllm, kAdapters},
    {"--max-loras", kVllm, kAdapters},
    {"--max-lora-rank", kVllm, kAdapters},
    {"--scheduling-policy", kVllm, kScheduler},
    {"--disable-log-requests", kVllm, kRequestLog},
    {"--enable-log-requests", kVllm, "that is --request-log, true by default"},
    {"--disable-log-stats", kVllm, kMetricsOff},
    {"--uvicorn-log-level", kVllm, "that is --log-info, --log-warning and --log-verbose"},
    {"--ssl-certfile", kVllm, kCert},
    {"--ssl-keyfile", kVllm, kKey},
    {"--ssl-ca-certs", kVllm, kRoots},
    {"--allowed-origins", kVllm, kOrigins},
    {"--limit-mm-per-prompt", kVllm, kText},
    {"--task", kVllm, kEmbeddings},
    {"--runner", kVllm, kEmbeddings},
    {"--api-server-count", kVllm, kIo},
    {"--max-seq-len-to-capture", kVllm, kStep},
    {"--seed", kVllm, kRequest},
    {"--n-gpu-layers", kLlama, kLayers},
    {"--gpu-layers", kLlama, kLayers},
    {"-ngl", kLlama, kLayers},
    {"--parallel", kLlama, kRows},
    {"-np", kLlama, kRows},
    {"--batch-size", kLlama, kStepTokens},
    {"-b", kLlama, kStepTokens},
    {"--ubatch-size", kLlama, kStepTokens},
    {"-ub", kLlama, kStepTokens},
    {"--alias", kLlama, kServedName},
    {"-a", kLlama, kServedName},
    {"--hf-repo", kLlama, kDir},
    {"-hf", kLlama, kDir},
    {"-hfr", kLlama, kDir},
    {"--model-url", kLlama, kDir},
    {"--model-draft", kLlama, kDraft},
    {"-md", kLlama, kDraft},
    {"--draft-max", kLlama, kDrafts},
    {"--draft", kLlama, kDrafts},
    {"--chat-template-file", kLlama, kTemplate},
    {"--jinja", kLlama, kOwnTemplate},
    {"--no-jinja", kLlama, kOwnTemplate},
    {"--reasoning-budget", kLlama, "that is thinking_budget of each request; leave it out"},
    {"--mlock", kLlama, kReadOnce},
    {"--no-mmap", kLlama, kReadOnce},
    {"--mmap", kLlama, kReadOnce},
    {"--numa", kLlama, "start the server with numactl"},
    {"--flash-attn", kLlama, kAlways},
    {"-fa", kLlama, kAlways},
    {"--cont-batching", kLlama, kAlways},
    {"-cb", kLlama, kAlways},
    {"--cache-type-k", kLlama, kKvType},
    {"-ctk", kLlama, kKvType},
    {"--cache-type-v", kLlama, kKvType},
    {"-ctv", kLlama, kKvType},
    {"--cache-reuse", kLlama, kPrefix},
    {"--lora", kLlama, "that is --lora-modules NAME=FOLDER"},
    {"--metrics", kLlama, kMetrics},
    {"--slots", kLlama, kMetrics},
    {"--threads-batch", kLlama, "that is --threads, for prompts too"},
    {"-tb", kLlama, "that is --threads, for prompts too"},
    {"--threads-http", kLlama, kIo},
    {"--main-gpu", kLlama, kGpu},
    {"-mg", kLlama, kGpu},
    {"--split-mode", kLlama, kSplit},
    {"-sm", kLlama, kSplit},
    {"--tensor-split", kLlama, kSplit},
    {"-ts", kLlama, kSplit},
    {"--rope-scaling", kLlama, kRope},
    {"--rope-freq-base", kLlama, kRope},
    {"--rope-freq-scale", kLlama, kRope},
    {"--override-kv", kLlama, kRope},
    {"--ssl-cert-file", kLlama, kCert},
    {"--ssl-key-file", kLlama, kKey},
    {"--verbose", kLlama, kLogVerbose},
    {"-v", kLlama, kLogVerbose},
    {"--timeout", kLlama, "those are --http-body-timeout-ms and --http-write-timeout-ms"},
    {"-to", kLlama, "those are --http-body-timeout-ms and --http-write-timeout-ms"},
    {"--n-predict", kLlama, kRequest},
    {"-n", kLlama, kRequest},
    {"--temp", kLlama, kRequest},
    {"--top-k", kLlama, kRequest},
    {"--top-p", kLlama, kRequest},
    {"--min-p", kLlama, kRequest},
    {"--grammar", kLlama, kRequest},
    {"--embedding", kLlama, kEmbeddings},
    {"--embeddings", kLlama, kEmbeddings},
    {"--reranking", kLlama, kEmbeddings},
    {"--mmproj", kLlama, kText},
    {"--webui", kLlama, kPage},
    {"--no-webui", kLlama, kPage},
};

constexpr Name kCommandNames[] = {
    {"ls", kOllama, "that is `inflight list`"},
    {"show", kOllama, "that is `inflight inspect DIR`"},
    {"stop", kOllama, "SIGTERM ends a server once its requests have ended"},
    {"create", kOllama, "`inflight serve DIR --chat-template FILE` serves a folder as it is"},
};

constexpr Name kVariables[] = {
    {"OLLAMA_HOST", kOllama, "those are --host and --port"},
    {"OLLAMA_MODELS", kOllama, kHubCache},
    {"OLLAMA_NUM_PARALLEL", kOllama, kRows},
    {"OLLAMA_CONTEXT_LENGTH", kOllama, kLength},
    {"OLLAMA_MAX_QUEUE", kOllama, "that is --max-queue-size"},
    {"OLLAMA_KV_CACHE_TYPE", kOllama, kKvType},
    {"OLLAMA_ORIGINS", kOllama, kOrigins},
    {"OLLAMA_API_KEY", kOllama, "that is --api-key-file"},
    {"VLLM_API_KEY", kVllm, "that is --api-key-file"},
    {"LLAMA_API_KEY", kLlama, "that is --api-key-file"},
    {"LLAMA_ARG_CTX_SIZE", kLlama, kLength},
    {"LLAMA_ARG_HOST", kLlama, "that is --host"},
    {"LLAMA_ARG_PORT", kLlama, "that is --port"},
};

std::optional<std::string> Said(std::span<const Name> names, std::string_view name,
                                std::string_view kind) {
  for (const Name& known : names) {
    if (known.name != name) continue;
    return "'" + std::string(name) + "' is " + std::string(kind) + " of " + known.of +
           "; here: " + known.here;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> OptionElsewhere(std::string_view flag) {
  std::string name(flag.substr(0, flag.find('=')));
  std::ranges::replace(name, '_', '-');
  return Said(kOptions, name, "an option");
}

std::optional<std::string> CommandElsewhere(std::string_view name) {
  return Said(kCommandNames, name, "a command");
}

void LogVariablesElsewhere() {
  for (const Name& variable : kVariables) {
    if (std::getenv(std::string(variable.name).c_str()) == nullptr) continue;
    logging::Info(std::string(variable.name) + " of the environment is of " + variable.of +
                  " and is not read; here: " + variable.here);
  }
}

}  // namespace inflight::tool
