#include <memory>

#include "bindings.hpp"
#include "steppe/kernel.hpp"
#include "steppe/serialize.hpp"

namespace py = pybind11;

namespace steppe::bindings {

// Added to the Kernel class: bytes out, and (kernel, cache pool or None, provenance) back in.
void bind_serialize(py::module_& m) {
  m.def(
      "kernel_to_bytes",
      [](const Kernel& kernel, const std::string& provenance) {
        const std::vector<std::uint8_t> bytes = serialize(Stored{kernel.plan(), std::nullopt, provenance});
        return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      },
      py::arg("kernel"), py::arg("provenance") = "");
  m.def(
      "kernel_from_bytes",
      [](const py::bytes& data) {
        char* start = nullptr;
        py::ssize_t size = 0;
        if (PyBytes_AsStringAndSize(data.ptr(), &start, &size) != 0) throw py::error_already_set();
        try {
          Stored stored = deserialize({reinterpret_cast<const std::uint8_t*>(start), static_cast<std::size_t>(size)});
          return py::make_tuple(std::make_shared<Kernel>(std::move(stored.plan)), stored.provenance);
        } catch (const std::invalid_argument& e) {
          raise(e.what());
        }
      },
      py::arg("data"));
  m.attr("FORMAT_VERSION") = kFormatVersion;
}

}  // namespace steppe::bindings
