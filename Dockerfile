# One static program and nothing else: no shell, no libc, no package that
# somebody would have to patch. The program is built before, by the toolchain
# that the tests ran with, so no builder image is pulled or trusted; `make
# image` does both, with docker, podman or buildah.
FROM scratch

ARG VERSION=0.0.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="belay" \
      org.opencontainers.image.description="Decides whether a Kubernetes object may be deleted, and holds it while something needs it" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

COPY belay /belay
USER 65532:65532
ENTRYPOINT ["/belay"]
CMD ["serve"]
