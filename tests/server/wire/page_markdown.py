"""What the page's Markdown is as nodes, and texts that try to be more than text."""

CODE = '<figure class="code"><figcaption><span>{0}</span></figcaption><pre tabindex="0"><code>{1}</code></pre></figure>'
LINK = '<a href="{0}" rel="noopener noreferrer" target="_blank">{1}</a>'

MARKDOWN = [
    ("plain", "<p>plain</p>"),
    ("two\nlines", "<p>two\nlines</p>"),
    ("one\n\ntwo", "<p>one</p><p>two</p>"),
    ("# One\n### Three #", "<h3>One</h3><h5>Three</h5>"),
    ("a **bold** and *slanted* ~~gone~~", "<p>a <strong>bold</strong> and <em>slanted</em> <del>gone</del></p>"),
    ("**a *b* c**", "<p><strong>a <em>b</em> c</strong></p>"),
    ("2 * 3 * 4, snake_case_name, *open", "<p>2 * 3 * 4, snake_case_name, *open</p>"),
    ("**half", "<p>**half</p>"),
    (r"\*no\*", "<p>*no*</p>"),
    ("`a < b` and ``c`d``", "<p><code>a &lt; b</code> and <code>c`d</code></p>"),
    ("`open", "<p>`open</p>"),
    ("- a\n- b\n  - c\n- d", "<ul><li><span>a</span></li><li><span>b</span><ul><li><span>c</span></li></ul></li>"
                             "<li><span>d</span></li></ul>"),
    ("1. a\n2. b", "<ol><li><span>a</span></li><li><span>b</span></li></ol>"),
    ("1. a\n   ```\n   x\n     y\n   ```", "<ol><li><span>a</span>" + CODE.format("code", "x\n  y") + "</li></ol>"),
    ("3) a", '<ol start="3"><li><span>a</span></li></ol>'),
    ("> a\n> **b**", "<blockquote><p>a\n<strong>b</strong></p></blockquote>"),
    ("a\n\n---\n\nb", "<p>a</p><hr><p>b</p>"),
    ("```python\nif a < b:\n\tpass\n```\nend", CODE.format("python", "if a &lt; b:\n\tpass") + "<p>end</p>"),
    ("```\nopen **fence", CODE.format("code", "open **fence")),
    ("~~~\n```\n~~~", CODE.format("code", "```")),
    ("def f(x):\n    return *x", CODE.format("code", "def f(x):\n    return *x")),
    ("| a | b |\n|---|--:|\n| 1 | `2` |", '<div class="table" tabindex="0"><table><thead><tr><th>a</th>'
     '<th class="right">b</th></tr></thead><tbody><tr><td>1</td><td class="right"><code>2</code></td></tr></tbody>'
     "</table></div>"),
    ("[text](https://a.example/b)", f"<p>{LINK.format('https://a.example/b', 'text')}</p>"),
    ("see https://a.example/b.", f"<p>see {LINK.format('https://a.example/b', 'https://a.example/b')}.</p>"),
    ("[text](javascript:alert(1))", "<p>[text](javascript:alert(1))</p>"),
    ("[text](//a.example)", "<p>[text](//a.example)</p>"),
    ("<b>no</b> &amp;", "<p>&lt;b&gt;no&lt;/b&gt; &amp;amp;</p>"),
]

INJECTIONS = [
    '<img src=x onerror="alert(1)">',
    "<script>alert(1)</script>",
    "```\n</code></pre><img src=x onerror=alert(1)>",
    "[a](javascript:alert(1)) [b](JaVaScRiPt:alert(1)) [c](data:text/html,x) [d](vbscript:x)",
    '[a](https://x.example/"onmouseover="alert(1)) [b](https://x.example/ "title" onclick=1)',
    "[![x](javascript:alert(1))](https://x.example) ![x](https://x.example/x.png)",
    "[<img src=x onerror=alert(1)>](https://x.example)",
    "| <svg onload=alert(1)> |\n|---|\n| <iframe src=javascript:alert(1)> |",
    "- <img src=x onerror=alert(1)>\n  > <script>x</script>",
    "https://x.example/<script>alert(1)</script>",
    "**<b onclick=alert(1)>**",
]
