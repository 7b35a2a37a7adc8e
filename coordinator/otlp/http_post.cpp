#include "otlp/http_post.hpp"

#include <asio/co_spawn.hpp>
#include <asio/use_awaitable.hpp>
#include <curl/curl.h>

#include <memory>
#include <utility>

namespace stacksaga::coordinator {
namespace {

constexpr long connect_milliseconds = 3000;
constexpr long request_milliseconds = 10000;

struct EndHandle {
    void operator()(CURL *handle) const noexcept { curl_easy_cleanup(handle); }
};
struct EndList {
    void operator()(curl_slist *list) const noexcept { curl_slist_free_all(list); }
};

using HeaderList = std::unique_ptr<curl_slist, EndList>;

HeaderList header_list(const std::vector<std::string> &headers) {
    HeaderList list(curl_slist_append(nullptr, "Content-Type: application/json"));
    for (const std::string &line : headers)
        curl_slist_append(list.get(), line.c_str());
    return list;
}

std::size_t ignore_answer(char *, std::size_t, std::size_t bytes, void *) {
    return bytes;
}

/// Not 0 ends the request.
int end_when_closed(void *closed, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<const std::atomic<bool> *>(closed)->load() ? 1 : 0;
}

} // namespace

HttpPoster::HttpPoster(std::string url, std::vector<std::string> headers)
    : url_(std::move(url)), headers_(std::move(headers)), thread_(1) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

HttpPoster::~HttpPoster() {
    close();
    thread_.join();
}

PostResult HttpPoster::perform(const std::string &json) const {
    const std::unique_ptr<CURL, EndHandle> handle(curl_easy_init());
    const HeaderList headers = header_list(headers_);
    CURL *curl = handle.get();
    curl_easy_setopt(curl, CURLOPT_URL, url_.c_str());
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(json.size()));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, json.c_str());
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "stacksaga-coordinator/" STACKSAGA_VERSION);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, connect_milliseconds);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, request_milliseconds);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ignore_answer);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, end_when_closed);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &closed_);
    const CURLcode code = curl_easy_perform(curl);
    if (code != CURLE_OK)
        return {0, curl_easy_strerror(code)};
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    return {static_cast<int>(status), {}};
}

asio::awaitable<PostResult> HttpPoster::post(std::string json) {
    auto request = [](const HttpPoster &poster, std::string body) -> asio::awaitable<PostResult> {
        co_return poster.perform(body);
    };
    auto on_other_thread =
        asio::co_spawn(thread_, request(*this, std::move(json)), asio::use_awaitable);
    co_return co_await std::move(on_other_thread);
}

} // namespace stacksaga::coordinator
