# mt in a container: `docker build --tag mt .` for CPUs, `docker build --target cuda --tag mt:cuda .` for NVIDIA GPUs.
# Serve a model folder: docker run --rm --publish 5000:5000 --volume "$PWD/runs/mine/model:/model:ro" mt

FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim AS runtime
RUN useradd --create-home --uid 1000 mt && install --directory --owner mt /data
WORKDIR /data
ENV PYTHONUNBUFFERED=1 HF_HUB_DISABLE_TELEMETRY=1
EXPOSE 5000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:5000/health', timeout=4)"]
ENTRYPOINT ["mt"]
CMD ["serve", "--host", "0.0.0.0", "--model", "/model"]

# PyPI's torch for Linux brings CUDA's libraries; the driver comes from the host (`docker run --gpus all`).
FROM runtime AS cuda
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    --mount=type=bind,source=constraints.txt,target=/constraints.txt \
    pip install --no-cache-dir --constraint /constraints.txt "$(echo /wheels/*.whl)[serve,documents]"
USER 1000

# The default target. torch's own index has builds without CUDA, which pip prefers: 2.13.0+cpu is newer than 2.13.0.
FROM runtime AS cpu
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    --mount=type=bind,source=constraints.txt,target=/constraints.txt \
    pip install --no-cache-dir --constraint /constraints.txt "$(echo /wheels/*.whl)[serve,documents]" \
    --extra-index-url https://download.pytorch.org/whl/cpu
USER 1000
