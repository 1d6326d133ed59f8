# The image contains one static program and no packages to patch. `make image`
# builds the program first, with the toolchain of the tests, so that the build
# needs no builder image.
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
