# SPDX-License-Identifier: Apache-2.0
"""Keys and certificates of tests, made by the openssl program, and TLS clients that believe them."""
import ssl
import subprocess

CONFIGURATION = """[ca]
default_ca = it
[it]
database = {folder}/index
rand_serial = yes
new_certs_dir = {folder}
default_md = sha256
policy = any
x509_extensions = names
unique_subject = no
[any]
commonName = supplied
[names]
subjectAltName = IP:127.0.0.1,DNS:localhost
"""


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=120)


def certificate(folder, name, key=("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"), dates=None):
    """A self-signed certificate for 127.0.0.1 and localhost, and its key: NAME.pem and NAME.key. `dates`: from and until,
    as "20200101000000Z"; else two days from now."""
    made, secret = folder / f"{name}.pem", folder / f"{name}.key"
    if dates is None:
        openssl("req", "-x509", "-newkey", *key, "-nodes", "-keyout", secret, "-out", made, "-days", 2, "-subj", f"/CN={name}",
                "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost")
    else:
        configuration = folder / "ca.conf"
        configuration.write_text(CONFIGURATION.format(folder=folder), encoding="utf-8")
        (folder / "index").write_text("", encoding="utf-8")
        request = folder / "request.pem"
        openssl("req", "-new", "-newkey", *key, "-nodes", "-keyout", secret, "-out", request, "-subj", f"/CN={name}")
        openssl("ca", "-batch", "-selfsign", "-notext", "-config", configuration, "-keyfile", secret, "-in", request,
                "-out", made, "-startdate", dates[0], "-enddate", dates[1])
    secret.chmod(0o600)
    return made, secret


def client(authority):
    """What a careful client believes: this certificate alone."""
    context = ssl.create_default_context(cafile=str(authority))
    context.set_alpn_protocols(["http/1.1"])
    return context


def manifest_lines(made, secret):
    """Of [host.http]."""
    return f'tls_certificate = "{made}"\ntls_key = "{secret}"'
