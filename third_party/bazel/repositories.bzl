"""The external repositories that Bazel 4.2 itself refers to, all of them on disk."""

def offline_repositories():
    """Declares them before Bazel's own WORKSPACE suffix would, which would download them."""
    native.local_repository(
        name = "rules_cc",
        path = "third_party/bazel/rules_cc",
    )
    native.local_repository(
        name = "remote_coverage_tools",
        path = "third_party/bazel/remote_coverage_tools",
    )

    # Debian: bazel-rules-java, bazel-rules-proto.
    native.local_repository(
        name = "rules_java",
        path = "/usr/share/bazel/rules/java",
    )
    native.local_repository(
        name = "rules_proto",
        path = "/usr/share/bazel/rules/proto",
    )
