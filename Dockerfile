# One image for every role: the command says which.
FROM python:3.12-slim

ENV PYTHONUNBUFFERED=1 \
    PYTHONHASHSEED=0 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1

RUN useradd --create-home --uid 10001 playlane
WORKDIR /app

# What changes rarely first: plays and code don't install the libraries anew.
COPY pyproject.toml README.md ./
RUN mkdir -p broker_config runtime workers examples bench \
 && touch broker_config/__init__.py runtime/__init__.py workers/__init__.py examples/__init__.py bench/__init__.py \
 && pip install '.[examples]' \
 && pip uninstall --yes playlane

COPY broker_config broker_config
COPY runtime runtime
COPY workers workers
COPY examples examples
RUN pip install --no-deps --editable .

USER playlane
STOPSIGNAL SIGTERM
ENTRYPOINT ["playlane"]
CMD ["--help"]
