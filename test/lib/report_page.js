// SPDX-License-Identifier: Apache-2.0
// For report.sh, at the end of a page: whether anything overflows, overlaps or cannot be read, as its title.
"use strict";
const faults = [];
let looked = 0;

function rgb(text) {
    const numbers = text.match(/[\d.]+/g);
    return numbers && numbers.length === 3 ? numbers.map(Number) : null;
}

function luminance(colour) {
    const [r, g, b] = colour.map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

// As WCAG 2 has it: 4.5 for text, 3 for what is drawn.
function contrast(a, b) {
    const [light, dark] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (light + 0.05) / (dark + 0.05);
}

const ground = rgb(getComputedStyle(document.body).backgroundColor);

function readable(element, property, least) {
    const colour = rgb(getComputedStyle(element)[property]);
    if (colour && contrast(colour, ground) < least)
        faults.push(`${element.tagName} "${element.textContent.slice(0, 20)}" has ${property} ${colour}`);
}

function apart(a, b) {
    return a.right < b.left + 1 || b.right < a.left + 1 || a.bottom < b.top + 2 || b.bottom < a.top + 2;
}

function picture(svg, width) {
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()]);
    if (frame.width < 200 || frame.height < 60 || texts.length < 4)
        faults.push(`a picture is ${frame.width} x ${frame.height} with ${texts.length} texts`);
    texts.forEach(([words, box], i) => {
        looked++;
        if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 ||
            box.bottom > frame.bottom + 1)
            faults.push(`"${words}" is cut off at ${width}`);
        if (Math.min(box.width, box.height) > 0 && Math.max(box.width, box.height) < 7)
            faults.push(`"${words}" is tiny at ${width}`);
        for (const [other, its] of texts.slice(i + 1))
            if (!apart(box, its))
                faults.push(`"${words}" overlaps "${other}" at ${width}`);
    });
}

for (const width of [360, 768, 1280]) {
    document.body.style.width = `${width}px`;
    document.body.style.margin = "0";
    if (document.body.scrollWidth > width)
        faults.push(`the page is ${document.body.scrollWidth} wide at ${width}`);
    for (const element of document.body.querySelectorAll("h1, h2, h3, h4, p, li, figure, summary, .wide"))
        if (element.getBoundingClientRect().right > width + 1)
            faults.push(`${element.tagName} "${element.textContent.slice(0, 20)}" overflows at ${width}`);
    document.querySelectorAll("svg").forEach(svg => picture(svg, width));
}
document.querySelectorAll("p, li, td, th, pre, figcaption").forEach(element => readable(element, "color", 4.5));
document.querySelectorAll("svg text").forEach(element => readable(element, "fill", 4.5));
document.querySelectorAll("svg [id*=line2d] > path").forEach(element => {
    if (element.getAttribute("clip-path") && !/--line/.test(element.getAttribute("style")))
        readable(element, "stroke", 3);
});
const scheme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
if ((luminance(ground) < 0.2) !== (scheme === "dark"))
    faults.push(`the ground is ${ground} where ${scheme} is preferred`);
document.title = faults.length ? `${faults.length} faults: ${faults.slice(0, 6).join("; ")}`
                               : `looked at: ${scheme}, ${looked} texts`;
