#!/usr/bin/python3
"""sbom.py ARCHIVE: prints the bill of materials of a release archive (.tar.gz) as SPDX 2.3: its files with their
checksums, and what it is built with, which is what debian/control in the archive says. Nothing of others is in the archive."""
import datetime
import hashlib
import json
import pathlib
import re
import sys
import tarfile


def main(archive):
    name = archive.name.removesuffix('.tar.gz')
    files, control, newest = [], '', 0
    with tarfile.open(archive) as tar:
        for member in sorted((each for each in tar if each.isfile()), key=lambda each: each.name):
            content = tar.extractfile(member).read()
            path = member.name.split('/', 1)[1]
            newest = max(newest, member.mtime)
            if path == 'debian/control':
                control = content.decode()
            files.append({
                'SPDXID': f'SPDXRef-File-{len(files)}', 'fileName': f'./{path}', 'copyrightText': 'NOASSERTION',
                'licenseConcluded': 'NOASSERTION', 'licenseInfoInFiles': ['NOASSERTION'],
                'checksums': [{'algorithm': kind, 'checksumValue': hashlib.new(kind, content).hexdigest()}
                              for kind in ('SHA1', 'SHA256')]})
    needs = re.search(r'^Build-Depends:(.*?)^\S', control, re.MULTILINE | re.DOTALL).group(1)
    needed = [re.match(r'[\w.+-]+', each.strip()).group() for each in needs.split(',') if each.strip()]
    whole = hashlib.sha256(archive.read_bytes()).hexdigest()
    packages = [{'SPDXID': 'SPDXRef-Package', 'name': 'stacksaga', 'versionInfo': name.rsplit('-', 1)[1],
                 'downloadLocation': 'NOASSERTION', 'packageFileName': archive.name, 'filesAnalyzed': True,
                 'packageVerificationCode': {'packageVerificationCodeValue': hashlib.sha1(''.join(
                     sorted(each['checksums'][0]['checksumValue'] for each in files)).encode()).hexdigest()},
                 'licenseInfoFromFiles': ['NOASSERTION'],
                 'checksums': [{'algorithm': 'SHA256', 'checksumValue': whole}],
                 'licenseConcluded': 'PostgreSQL', 'licenseDeclared': 'PostgreSQL', 'copyrightText': 'NOASSERTION'}]
    packages += [{'SPDXID': f'SPDXRef-Needs-{number}', 'name': need, 'downloadLocation': 'NOASSERTION',
                  'filesAnalyzed': False, 'licenseConcluded': 'NOASSERTION', 'licenseDeclared': 'NOASSERTION',
                  'copyrightText': 'NOASSERTION'} for number, need in enumerate(needed)]
    json.dump({
        'spdxVersion': 'SPDX-2.3', 'dataLicense': 'CC0-1.0', 'SPDXID': 'SPDXRef-DOCUMENT', 'name': name,
        'documentNamespace': f'urn:stacksaga:{name}:{whole}',
        # Of the commit, so that the same commit has the same bill.
        'creationInfo': {'created': instant(newest), 'creators': ['Tool: test/tools/sbom.py']},
        'packages': packages, 'files': files,
        'relationships':
            [{'spdxElementId': 'SPDXRef-DOCUMENT', 'relationshipType': 'DESCRIBES', 'relatedSpdxElement': 'SPDXRef-Package'}]
            + [{'spdxElementId': 'SPDXRef-Package', 'relationshipType': 'CONTAINS', 'relatedSpdxElement': each['SPDXID']}
               for each in files]
            + [{'spdxElementId': each['SPDXID'], 'relationshipType': 'BUILD_DEPENDENCY_OF',
                'relatedSpdxElement': 'SPDXRef-Package'} for each in packages[1:]],
    }, sys.stdout, indent=1)
    print()


def instant(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ')


main(pathlib.Path(sys.argv[1]))
