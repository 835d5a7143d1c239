// Feeds the golden inputs of an exported folder to its ONNX file and compares the outputs with PyTorch's.
//
//     golden MODEL.onnx golden.safetensors [TOLERANCE]
//
// Prints the largest difference of each group and ends with 1 where one exceeds TOLERANCE (by default 0.0001, for fp32;
// docs/exported-graph.md has the limits of other precisions), as a share of the largest output or of 1.

#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

struct Array {
    std::vector<int64_t> shape;
    std::vector<char> bytes;
};
using Arrays = std::map<std::string, Array>;
struct Group {
    Arrays inputs, outputs;
};

std::vector<int64_t> numbers(const std::string& text) {
    std::vector<int64_t> values;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, ',');) values.push_back(std::stoll(part));
    return values;
}

// safetensors: eight bytes with the length of a JSON header, the header, and the arrays one after the other.
std::map<std::string, Group> read_golden(const char* path) {
    std::ifstream file(path, std::ios::binary);
    uint64_t length = 0;
    if (!file.read(reinterpret_cast<char*>(&length), sizeof length) || length > (1u << 20))
        throw std::runtime_error(std::string(path) + " is not a safetensors file.");
    std::string header(length, ' ');
    file.read(&header[0], static_cast<std::streamsize>(length));
    const std::vector<char> data{std::istreambuf_iterator<char>(file), {}};
    const std::regex entry(
        R"re("(\w+)/(inputs|outputs)/(\w+)":\{"dtype":"\w+","shape":\[([\d,]*)\],"data_offsets":\[(\d+),(\d+)\]\})re");
    std::map<std::string, Group> groups;
    for (std::sregex_iterator found(header.begin(), header.end(), entry), end; found != end; ++found) {
        const auto& match = *found;
        const auto first = std::stoull(match[5]), last = std::stoull(match[6]);
        if (last > data.size()) throw std::runtime_error(std::string(path) + " ends too early.");
        Group& group = groups[match[1]];
        Array& array = (match[2] == "inputs" ? group.inputs : group.outputs)[match[3]];
        array.shape = numbers(match[4]);
        array.bytes.assign(data.begin() + first, data.begin() + last);
    }
    return groups;
}

// Returns the largest difference relative to the largest output, or to 1. What has a value per token is compared
// where the mask is 1: values at padding mean nothing.
double difference(const std::string& name, const Array& expected, const float* got, const Array& mask) {
    const auto* want = reinterpret_cast<const float*>(expected.bytes.data());
    const auto* real = reinterpret_cast<const int64_t*>(mask.bytes.data());
    const size_t count = expected.bytes.size() / sizeof(float), tokens = mask.bytes.size() / sizeof(int64_t);
    const bool per_token = expected.shape.size() == 3 || name == "start_logits" || name == "end_logits";
    double largest = 1, worst = 0;
    for (size_t i = 0; i < count; ++i) {
        if (per_token && real[i / (count / tokens)] == 0) continue;
        if (!std::isfinite(got[i])) return INFINITY;
        largest = std::max(largest, std::abs(static_cast<double>(want[i])));
        worst = std::max(worst, std::abs(static_cast<double>(want[i]) - got[i]));
    }
    return worst / largest;
}

double run(Ort::Session& session, Group& group) {
    const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    std::vector<Ort::Value> values;
    std::vector<const char*> inputs, outputs;
    for (auto& [name, array] : group.inputs) {
        inputs.push_back(name.c_str());
        values.push_back(Ort::Value::CreateTensor<int64_t>(
            memory, reinterpret_cast<int64_t*>(array.bytes.data()), array.bytes.size() / sizeof(int64_t),
            array.shape.data(), array.shape.size()));
    }
    for (const auto& [name, array] : group.outputs) outputs.push_back(name.c_str());
    const auto results =
        session.Run(Ort::RunOptions{}, inputs.data(), values.data(), values.size(), outputs.data(), outputs.size());
    double worst = 0;
    size_t index = 0;
    for (const auto& [name, expected] : group.outputs) {
        const Ort::Value& result = results[index++];
        if (result.GetTensorTypeAndShapeInfo().GetShape() != expected.shape)
            throw std::runtime_error(name + " has another shape.");
        const auto* got = result.GetTensorData<float>();
        worst = std::max(worst, difference(name, expected, got, group.inputs["attention_mask"]));
    }
    return worst;
}

int main(int count, char** arguments) try {
    if (count < 3) throw std::runtime_error("usage: golden MODEL.onnx golden.safetensors [TOLERANCE]");
    const double tolerance = count > 3 ? std::stod(arguments[3]) : 1e-4;
    auto groups = read_golden(arguments[2]);
    if (groups.empty()) throw std::runtime_error(std::string(arguments[2]) + " holds no golden inputs.");
    Ort::Env environment(ORT_LOGGING_LEVEL_ERROR);
    Ort::SessionOptions options;
    options.SetIntraOpNumThreads(1);
    // Without VNNI some INT8 products overflow unless an exact kernel is asked for; it may be left out where
    // compress.json says "guard_overflow": false.
    options.AddConfigEntry("session.x64quantprecision", "1");
    Ort::Session session(environment, arguments[1], options);
    bool within = true;
    for (auto& [name, group] : groups) {
        const double worst = run(session, group);
        within = within && worst <= tolerance;
        std::printf("%s: %.2g\n", name.c_str(), worst);
    }
    return within ? 0 : 1;
} catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
}
