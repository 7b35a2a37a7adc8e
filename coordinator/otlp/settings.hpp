// Where spans are sent.
#pragma once

#include <string>
#include <vector>

namespace stacksaga::coordinator {

struct OtlpSettings {
    std::string endpoint;             ///< http(s)://HOST:PORT[/PATH]; empty for none
    std::vector<std::string> headers; ///< NAME: VALUE, of each request
};

} // namespace stacksaga::coordinator
