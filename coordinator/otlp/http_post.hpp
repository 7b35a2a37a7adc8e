// Sends documents by HTTP or HTTPS with libcurl, on a thread of its own.
#pragma once

#include <asio/awaitable.hpp>
#include <asio/thread_pool.hpp>

#include <atomic>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

/// What became of a request. Without an answer the status is 0 and the error says why.
struct PostResult {
    int status = 0;
    std::string error;

    [[nodiscard]] bool is_accepted() const noexcept { return status >= 200 && status < 300; }
    /// Whether the same request may be accepted later: no answer, too many requests, or a server
    /// that is not ready (OTLP 1.3, "Retryable Response Codes").
    [[nodiscard]] bool may_be_repeated() const noexcept {
        return status == 0 || status == 429 || status == 502 || status == 503 || status == 504;
    }
};

/// Lifecycle: constructed; post() any number of times, one after the other; close() ends a request
/// that runs. Threads: post() from one; the request runs on another.
class HttpPoster {
public:
    /// `headers` are lines NAME: VALUE of each request, besides its content type.
    HttpPoster(std::string url, std::vector<std::string> headers);
    HttpPoster(const HttpPoster &) = delete;
    HttpPoster &operator=(const HttpPoster &) = delete;
    ~HttpPoster();

    /// Posts JSON, for at most ten seconds. Throws nothing but bad_alloc.
    asio::awaitable<PostResult> post(std::string json);

    void close() noexcept { closed_ = true; }

private:
    PostResult perform(const std::string &json) const;

    std::string url_;
    std::vector<std::string> headers_;
    std::atomic<bool> closed_ = false;
    asio::thread_pool thread_;
};

} // namespace stacksaga::coordinator
