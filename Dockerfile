# The image holds one static binary and nothing else: server, operator and plugin are the same file.
#
#   docker build -t quorate .                                        builds the binary in the first stage
#   buildah bud --build-context build=DIR -t quorate .               takes DIR/out/quorate, built beforehand
#
# The tests use the second form, so that they run the very stage that users ship.

FROM docker.io/library/rust:1.95-alpine AS build
RUN apk add --no-cache musl-dev gcc g++ cmake make perl linux-headers
WORKDIR /source
COPY . .
RUN cargo build --release --locked --bin quorate && mkdir /out && cp target/release/quorate /out/quorate

FROM scratch
ARG VERSION=0.2.0
LABEL org.opencontainers.image.title="quorate" \
      org.opencontainers.image.description="Replicated etcd-style clusters on Kubernetes: operator and server" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=build /out/quorate /quorate
# 65532 is the customary non-root user of minimal images; a number, so that Kubernetes can check it.
USER 65532:65532
EXPOSE 2379 2380 2381
ENTRYPOINT ["/quorate"]
