// Prices one step of a serialized kernel (`open("kernel.bin", "wb").write(kernel.to_bytes())` in Python).
//
//   price KERNEL [DECODES [CONTEXT]]
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <steppe/kernel.hpp>
#include <steppe/serialize.hpp>
#include <vector>

int main(int count, char** words) try {
  if (count < 2) {
    std::fprintf(stderr, "usage: price KERNEL [DECODES [CONTEXT]]\n");
    return 2;
  }
  std::ifstream file(words[1], std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  const steppe::Stored stored =
      steppe::deserialize({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  const steppe::Kernel kernel(stored.plan);

  const auto decodes = static_cast<std::size_t>(count > 2 ? std::atoi(words[2]) : 64);
  const std::vector<std::int32_t> scheduled(decodes, 1),
      computed(decodes, count > 3 ? std::atoi(words[3]) : 2048);
  steppe::Estimate e;
  const steppe::Status status = kernel.step_time({scheduled, computed}, e);
  if (status != steppe::Status::ok) {
    std::fprintf(stderr, "price: %s\n", steppe::describe(status));
    return 1;
  }
  std::printf("%zu decodes: %.3f ms", decodes, static_cast<double>(e.no_overlap_ns) / 1e6);
  for (std::size_t r = 0; r < steppe::kResources; ++r) {
    std::printf("  %s %.3f", steppe::kResourceNames[r], static_cast<double>(e.resource_ns[r]) / 1e6);
  }
  std::printf("\n");
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "price: %s\n", e.what());
  return 1;
}
